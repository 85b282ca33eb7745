"""Shards and their exports as trainers read them: Hugging Face `datasets`, and the metadata that Step1X-Edit and OmniGen2 ask for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from pipeline.cli import main
from stages.engine import storage
from stages.shards import exports
from stages.shards import format as shards


@pytest.fixture(scope="module")
def triplets(shared_data: Path) -> list[tuple[str, bytes, bytes, str]]:
    """Twelve real edits (id, source, edited, instruction), Chinese and quotation marks among the instructions; all images are JPEG."""
    rows = [json.loads(line) for line in (shared_data / "triplets" / "triplets.jsonl").read_text().splitlines()]
    chosen = [row for row in rows if {row["source"][-4:], row["candidate"][-4:]} == {".jpg"}][:11]
    chosen += [row for row in rows if not row["instruction"].isascii()][:1]
    return [
        (
            hashlib.sha256(row["id"].encode()).hexdigest()[:24],
            (shared_data / "triplets" / row["source"]).read_bytes(),
            (shared_data / "triplets" / row["candidate"]).read_bytes(),
            row["instruction"],
        )
        for row in chosen
    ]


def write(folder: str, triplets: list[tuple[str, bytes, bytes, str]], per_shard: int = 5) -> str:
    """A finished folder of shards."""
    records, indexes = [], []
    for number, first in enumerate(range(0, len(triplets), per_shard)):
        samples = [
            shards.Sample(
                sample_id,
                source,
                hashlib.sha256(source).hexdigest(),
                edited,
                hashlib.sha256(edited).hexdigest(),
                {
                    "instruction": instruction,
                    "licence": "as delivered",
                    "scores": {"overall": {"mean": 0.5, "sigma": 0.1}, "visual_quality": {"mean": 0.5, "sigma": 0.1, "likert": None}},
                    "selection": {"rank": first + place},
                },
            )
            for place, (sample_id, source, edited, instruction) in enumerate(triplets[first : first + per_shard])
        ]
        record, index = shards.write_shard(folder, shards.shard_name(number), samples)
        records.append(record)
        indexes.append(index)
    shards.publish(folder, records, pa.concat_tables(indexes).to_reader(), {"selection": "s", "key": "k"})
    return folder


@pytest.fixture(scope="module")
def folder(triplets: list[tuple[str, bytes, bytes, str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(str(tmp_path_factory.mktemp("shards") / "selected"), triplets)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_datasets_reads_the_shards(folder: str, triplets: list, tmp_path: Path) -> None:
    import datasets

    tars = sorted(str(path) for path in Path(folder).glob("*.tar"))
    loaded = datasets.load_dataset("webdataset", data_files=tars, split="train", cache_dir=str(tmp_path))
    loaded = loaded.cast_column("source.jpg", datasets.Image(decode=False)).cast_column("edited.jpg", datasets.Image(decode=False))
    assert [row["__key__"] for row in loaded] == [sample_id for sample_id, *_ in triplets]
    for row, (_, source, edited, instruction) in zip(loaded, triplets, strict=True):
        assert row["source.jpg"]["bytes"] == source and row["edited.jpg"]["bytes"] == edited
        assert row["json"]["instruction"] == instruction


def test_datasets_reads_shards_of_several_kinds_of_images_when_told_the_columns(triplets: list, tmp_path: Path) -> None:
    """As docs/shards.md says: without features the first five samples must agree in their columns."""
    import datasets

    png = b"\x89PNG\r\n\x1a\n"
    mixed = [triplets[0], (triplets[1][0], png + b"1", *triplets[1][2:]), *triplets[2:4]]
    write(str(tmp_path / "mixed"), mixed)
    columns = {f"{role}.{kind}": datasets.Image(decode=False) for role in ("source", "edited") for kind in ("jpg", "png", "webp")}
    facts = {"__key__": datasets.Value("string"), "json": {"instruction": datasets.Value("string")}}
    features = datasets.Features(columns | facts)
    options = {"data_files": str(tmp_path / "mixed" / "*.tar"), "split": "train", "streaming": True}
    rows = list(datasets.load_dataset("webdataset", features=features, **options))
    assert [row["source.png"] and row["source.png"]["bytes"] for row in rows] == [None, png + b"1", None, None]
    assert [row["edited.jpg"]["bytes"] for row in rows] == [edited for _, _, edited, _ in mixed]
    assert [row["json"]["instruction"] for row in rows] == [instruction for *_, instruction in mixed]
    with pytest.raises(ValueError, match="the same types"):
        datasets.load_dataset("webdataset", **options)


def test_imagefolder_is_read_by_datasets_as_diffusers_reads_it(folder: str, triplets: list, tmp_path: Path) -> None:
    import datasets

    result = CliRunner().invoke(main, ["shards", "export", "--format", "imagefolder", folder, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert result.output == f"12 samples in {tmp_path / 'out'}; for the trainer: {tmp_path / 'out' / 'metadata.jsonl'}\n"
    files = {"train": str(tmp_path / "out" / "**")}
    loaded = datasets.load_dataset("imagefolder", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    assert {"input_image", "edit_prompt", "edited_image"} <= set(loaded.column_names)
    known = {sample_id: rest for sample_id, *rest in triplets}
    assert len(loaded) == 12 and set(loaded["sample_id"]) == known.keys() and sorted(loaded["rank"]) == list(range(12))
    for row in loaded:
        assert row["edit_prompt"] == known[row["sample_id"]][2] and row["licence"] == "as delivered"
        assert row["input_image"].size and row["edited_image"].size  # decoded
    for sample_id, (source, edited, _) in known.items():
        assert (tmp_path / "out" / "source" / f"{sample_id}.jpg").read_bytes() == source
        assert (tmp_path / "out" / "edited" / f"{sample_id}.jpg").read_bytes() == edited


def test_step1x_finds_target_source_and_caption(folder: str, triplets: list, tmp_path: Path) -> None:
    exports.export(folder, str(tmp_path / "out"), "step1x")
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert len(metadata) == 12
    for (target, entry), (_, source, edited, instruction) in zip(metadata.items(), triplets, strict=True):
        assert Path(target).is_absolute() and Path(target).read_bytes() == edited
        assert Path(entry["ref_image_path"]).read_bytes() == source
        assert entry == {"ref_image_path": entry["ref_image_path"], "caption": instruction}


def test_omnigen2_goes_from_its_data_list_to_images(folder: str, triplets: list, tmp_path: Path) -> None:
    import datasets

    exports.export(folder, str(tmp_path / "out: #1"), "omnigen2")
    (listed,) = yaml.safe_load((tmp_path / "out: #1" / "data.yml").read_text())["data"]
    assert listed["type"] == "edit" and listed["ratio"] == 1.0
    rows = datasets.load_dataset("json", data_files=[listed["path"]], split="train", cache_dir=str(tmp_path / "cache"))
    for row, (sample_id, source, edited, instruction) in zip(rows, triplets, strict=True):
        assert (row["task_type"], row["instruction"], row["sample_id"]) == ("edit", instruction, sample_id)
        assert [Path(path).read_bytes() for path in row["input_images"]] == [source]
        assert Path(row["output_image"]).read_bytes() == edited


def test_the_same_shards_anywhere_give_the_same_files(folder: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(folder, f"/{tmp_path.name}", recursive=True)
    (tmp_path / "two").mkdir()
    exports.export(folder, str(tmp_path / "one"), "imagefolder")
    exports.export(f"memory://{tmp_path.name}/", str(tmp_path / "two"), "imagefolder")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("flip", "contains another .*\\.source\\.jpg at byte 512"),
        ("cut", "was cut short at byte 3000"),
        ("lose", "shard-000001.tar is missing"),
        ("unfinished", "has no index.json: it was not finished"),
        ("sample index", "samples.parquet is missing"),
        ("index", "is damaged: it should be a JSON object"),
        ("listed", "is damaged: it does not have the checksum"),
        ("listed anew", "is damaged: it says 8 samples, its entries add up to 5"),
        ("listed without", "says 0 samples in shard-000001.tar, samples.parquet lists 3"),
    ],
)
def test_damaged_shards_leave_no_export(folder: str, triplets: list, tmp_path: Path, damage: str, sentence: str) -> None:
    copy = Path(write(str(tmp_path / "copy"), triplets[:8]))
    tar = copy / "shard-000001.tar"
    data = bytearray(tar.read_bytes())
    if damage == "flip":
        data[700] ^= 1
        tar.write_bytes(bytes(data))
    elif damage == "cut":
        tar.write_bytes(bytes(data[:3000]))
    elif damage == "index":
        (copy / "index.json").write_text("[]")
    elif damage.startswith("listed"):
        index = storage.read_checked(copy / "index.json", "")
        lost = index["shards"].pop()
        if damage == "listed without":
            index |= {"rows": 5, "bytes": index["bytes"] - lost["bytes"], "samples": index["samples"] | {"rows": 5}}
        if damage == "listed":
            storage.publish_json(copy / "index.json", index | {storage.CHECKSUM: "0"})
        else:
            storage.publish_checked(copy / "index.json", index)
    else:
        (copy / {"lose": tar.name, "unfinished": "index.json", "sample index": "samples.parquet"}[damage]).unlink()
    result = CliRunner().invoke(main, ["shards", "export", "--format", "step1x", str(copy), str(tmp_path / "out")])
    assert result.exit_code == 1 and result.output.startswith("error: ") and result.output.count("\n") == 1
    with pytest.raises(ValueError, match=sentence):
        exports.export(str(copy), str(tmp_path / "out"), "step1x")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_nothing_is_overwritten(folder: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(ValueError, match=f"{name} exists and is not an empty folder"):
            exports.export(folder, str(tmp_path / name), "imagefolder")
    with pytest.raises(ValueError, match="is a URL; trainers that read files need a local folder"):
        exports.export(folder, "memory://elsewhere", "imagefolder")
    assert tree(tmp_path) == {"full/mine.txt": b"mine", "file": b"mine"}


def test_a_broken_off_export_is_not_taken_for_a_finished_one(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves only a folder under another name, and the next export of the same target succeeds."""
    with monkeypatch.context() as patch:
        patch.setattr(exports.shutil, "rmtree", lambda *_, **__: None)  # what a killed process does not do
        patch.setitem(exports.FORMATS, "imagefolder", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            exports.export(folder, str(tmp_path / "out"), "imagefolder")
    assert not (tmp_path / "out").exists() and len(list(tmp_path.iterdir())) == 1
    assert exports.export(folder, str(tmp_path / "out"), "imagefolder")[0] == 12
    assert len(tree(tmp_path / "out")) == 26
