"""Readers of published and own layouts of edits, over files made here in the documented layout from real images."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from generate_here import candidates_here, sources_here
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from stages.datasets import readers as edits
from stages.datasets.config import CandidateEdits, EditRewardDataEdits, EditsInput, TableColumns, TableEdits, WebdatasetEdits
from stages.datasets.io import text_blocks, text_tables
from stages.datasets.io.blocks import Block, Spans, cut_blocks, read_addressed
from stages.datasets.slices import is_text
from stages.engine.contracts import EDITS, IMAGE, Quarantined
from stages.shards import format as shards

steady = settings(deadline=None, derandomize=True)
Triplet = dict[str, Any]


@pytest.fixture(scope="session")
def triplets(shared_data: Path) -> list[Triplet]:
    """Ten real triplets with their images as bytes."""
    folder = shared_data / "triplets"
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines()][::6]
    return [
        {
            "id": row["id"],
            "instruction": row["instruction"],
            "source_name": row["source"],
            "edited_name": row["candidate"],
            "source": (folder / row["source"]).read_bytes(),
            "edited": (folder / row["candidate"]).read_bytes(),
        }
        for row in rows
    ]


def everything(config: EditsInput, unit_rows: int = 4) -> list[edits.Edit | Quarantined]:
    return [entry for piece in edits.plan(config, seed=0, world=None, unit_rows=unit_rows) for entry in edits.load(piece)]


def sound(entries: list[edits.Edit | Quarantined]) -> list[edits.Edit]:
    assert not [entry for entry in entries if isinstance(entry, Quarantined)]
    return [entry for entry in entries if isinstance(entry, edits.Edit)]


def set_aside(entries: list[edits.Edit | Quarantined]) -> dict[str, str]:
    return {entry.position: entry.reason for entry in entries if isinstance(entry, Quarantined)}


def holds(entries: list[edits.Edit | Quarantined], triplets: list[Triplet]) -> None:
    """The edits are the triplets, in their order, with their bytes; and picked rows are the same rows."""
    found = sound(entries)
    assert [(e.source, e.instruction, e.edited) for e in found] == [(t["source"], t["instruction"], t["edited"]) for t in triplets]
    pa.Table.from_pylist([edit.row(with_images=True) for edit in found], schema=EDITS)


def picked(config: EditsInput, count: int) -> None:
    """Rows in any order are those rows, however the data set is cut."""
    expected = sound(everything(config, 1000))
    order = [count - 1, 0, 2, 1, count // 2]
    for unit_rows in (1, 3, 1000):
        plan = edits.plan(config, seed=0, world=None, unit_rows=unit_rows)
        found = list(edits.fetch_known(edits.pick(plan, order), [expected[number].sample_id for number in order]))
        assert found == [expected[number] for number in order]
        assert [edits.numbers_of(pa.chunked_array([[e.position for e in found]])).tolist()] == [order]


def image(data: bytes) -> dict[str, Any]:
    return {"bytes": data, "path": None}


def write_parquet(path: Path, rows: list[dict[str, Any]], images: tuple[str, ...] = (), group: int = 3) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    for name in images:
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([row[name] for row in rows], IMAGE))
    pq.write_table(table, path, row_group_size=group)


def unpack(folder: Path, triplets: list[Triplet]) -> None:
    for triplet in triplets:
        for role in ("source", "edited"):
            path = folder / triplet[f"{role}_name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(triplet[role])


def omniedit(folder: Path, triplets: list[Triplet]) -> TableEdits:
    rows = [
        {
            "omni_edit_id": t["id"],
            "task": "swap",
            "src_img": image(t["source"]),
            "edited_img": image(t["edited"]),
            "edited_prompt_list": [t["instruction"], "another wording"],
            "o_score": 9.5,
        }
        for t in triplets
    ]
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", rows[:7], ("src_img", "edited_img"))
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", rows[7:], ("src_img", "edited_img"))
    (folder / "README.md").write_text("card")
    return TableEdits(dataset="table", path=str(folder), preset="omniedit")


def test_omniedit_as_sharded_parquet_with_image_structs(tmp_path: Path, triplets: list[Triplet]) -> None:
    config = omniedit(tmp_path, triplets)
    entries = everything(config)
    holds(entries, triplets)
    first = sound(entries)[0]
    assert (first.row_id, first.task, first.dataset) == (triplets[0]["id"], "swap", "omniedit") and first.licence.startswith("MIT")
    assert json.loads(first.metadata) == {"instructions": ["another wording"], "o_score": 9.5}
    assert [e.position for e in sound(entries)][6:8] == ["data/train-00000-of-00002.parquet[6]", "data/train-00001-of-00002.parquet[7]"]
    picked(config, len(triplets))
    one = config.model_copy(update={"path": f"{tmp_path}/data/*-00001-of-*.parquet"})
    holds(everything(one), triplets[7:])


def test_gpt_image_edit_json_list_with_an_image_folder(tmp_path: Path, triplets: list[Triplet]) -> None:
    unpack(tmp_path / "images", triplets)
    records = [{"input": t["source_name"], "output": t["edited_name"], "instruction": t["instruction"], "task": "edit"} for t in triplets]
    (tmp_path / "annotation.json").write_text(json.dumps(records, indent=2), encoding="utf-8")
    path, images = str(tmp_path / "annotation.json"), str(tmp_path / "images")
    config = TableEdits(dataset="table", path=path, preset="gpt-image-edit", images=images)
    holds(everything(config), triplets)
    picked(config, len(triplets))


def test_imgedit_lists_of_paths(tmp_path: Path, triplets: list[Triplet]) -> None:
    unpack(tmp_path, triplets)
    rows = [{"input_images": [t["source_name"]], "output_images": [t["edited_name"]], "prompt": t["instruction"]} for t in triplets]
    rows += [rows[0] | {"input_images": [triplets[0]["source_name"]] * 2}, rows[0] | {"output_images": []}]
    write_parquet(tmp_path / "Parquet" / "remove_part0.parquet", rows)
    config = TableEdits(dataset="table", path=str(tmp_path / "Parquet"), preset="imgedit", images=str(tmp_path))
    entries = everything(config)
    holds(entries[:-2], triplets)
    assert set_aside(entries) == {"remove_part0.parquet[10]": "several-images", "remove_part0.parquet[11]": "missing-image"}


def test_pico_banana_json_lines(tmp_path: Path, triplets: list[Triplet]) -> None:
    unpack(tmp_path, triplets)
    rows = [
        {
            "open_image_input_url": "https://example.org/1.jpg",
            "local_input_image": t["source_name"],
            "text": t["instruction"],
            "output_image": t["edited_name"],
            "edit_type": "Remove an existing object",
            "summarized_text": "gone",
        }
        for t in triplets
    ]
    (tmp_path / "sft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = TableEdits(dataset="table", path=str(tmp_path / "sft.jsonl"), preset="pico-banana")
    entries = everything(config)
    holds(entries, triplets)
    assert sound(entries)[3].row_id == triplets[3]["edited_name"] and "NC-ND" in sound(entries)[3].licence


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_an_own_table_with_other_columns(tmp_path: Path, triplets: list[Triplet], suffix: str, separator: str) -> None:
    unpack(tmp_path, triplets)
    with open(tmp_path / f"mine{suffix}", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["before", "what", "after", "task"])
        writer.writerows([t["source_name"], f'{t["instruction"]},\n"so"', t["edited_name"], "add"] for t in triplets)
        writer.writerow([triplets[0]["source_name"], "x", "absent.png", "add"])
        file.write("one cell\n")
    columns = TableColumns(source="before", instruction="what", edited="after")
    config = TableEdits(dataset="table", path=str(tmp_path / f"mine{suffix}"), columns=columns, licence="CC0")
    entries = everything(config)
    holds(entries[:-2], [t | {"instruction": f'{t["instruction"]},\n"so"'} for t in triplets])
    assert {(e.task, e.licence) for e in sound(entries[:-2])} == {("add", "CC0")}
    assert set_aside(entries) == {f"mine{suffix}[10]": "missing-image", f"mine{suffix}[11]": "bad-line"}


def test_damaged_rows_of_tables_cost_only_themselves(tmp_path: Path, triplets: list[Triplet]) -> None:
    good = {"source": image(triplets[0]["source"]), "instruction": "x", "edited": image(triplets[0]["edited"])}
    rows = [
        good,
        good | {"instruction": " "},
        good | {"instruction": None},
        good | {"source": None},
        good | {"edited": image(triplets[0]["edited"][:-100])},
        good | {"edited": image(b"GIF89a")},
        good | {"edited": {"bytes": None, "path": "absent.png"}},
    ]
    write_parquet(tmp_path / "a.parquet", rows, ("source", "edited"))
    entries = everything(TableEdits(dataset="table", path=str(tmp_path / "a.parquet")))
    reasons = ["empty-instruction", "empty-instruction", "missing-image", "undecodable-image", "unsupported-format", "missing-image"]
    assert list(set_aside(entries).values()) == reasons and len(entries) == 7
    lines = [b"{not json", b"[1]", b'{"source": 3, "instruction": "x", "edited": "y"}', b'{"source": "a", "instruction": 3, "edited": "b"}']
    lines += [rb'{"source": "a", "instruction": "\udc00", "edited": "b"}', b"", b"\xff"]
    (tmp_path / "b.jsonl").write_bytes(b'{"source": "nul\\u0000", "instruction": "x", "edited": "b"}\n' + b"\n".join(lines))
    entries = everything(TableEdits(dataset="table", path=str(tmp_path / "b.jsonl")))
    assert [entry.reason for entry in entries if isinstance(entry, Quarantined)] == [
        "missing-image",
        "bad-line",
        "bad-line",
        "bad-row",
        "bad-row",
        "bad-line",
        "bad-line",
    ]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"path": "absent.parquet"}, "there is no file .*absent.parquet"),
        ({"path": "absent"}, "there is no .*absent; correct the path"),
        ({"path": "nowhere/*.parquet"}, "no file matches .*there is no folder .*nowhere"),
        ({"path": "texts/*.parquet"}, r"no file matches .*texts contains a.jsonl, b.json, c.json, d.jsonl"),
        ({"path": "texts"}, r"has no \*.parquet; name a file or a pattern .*texts contains a.jsonl"),
        ({"path": "texts/*"}, r"e.txt .* is not of a kind that is read here \(.parquet, .jsonl"),
        ({"path": "texts/e.txt"}, "e.txt is not a folder, and not a file of a kind"),
        (
            {"path": "texts/a.jsonl"},
            r"a.jsonl has no column source; it has src, text: choose a preset, or name",
        ),
        ({"path": "texts/a.jsonl", "preset": "omniedit"}, "has no column src_img; it has src, text"),
        ({"path": "texts/b.json"}, "b.json is not valid JSON after byte 15 "),
        ({"path": "texts/c.json"}, "c.json should be a JSON list of records"),
        ({"path": "lines.json"}, r"lines.json is no JSON list but JSON Lines, a record per line; give it the ending .jsonl"),
        ({"path": "texts/d.jsonl"}, "d.jsonl has no rows"),
        (
            {"path": "list.jsonl"},
            r"list.jsonl: none of its first records can be read \(the first: the record should be an object, it is \[.*; correct it",
        ),
        ({"path": "wide.csv"}, r"wide.csv is no UTF-8 text, perhaps UTF-16; save it as CSV in UTF-8 again"),
        ({"path": "cut.parquet"}, "cut.parquet is not a whole Parquet file .*download it again"),
        ({"path": "texts/a.jsonl", "preset": "gedit-bench"}, "gedit-bench has sources and instructions but no edited images"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence(tmp_path: Path, config: dict[str, Any], sentence: str) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    contents = {"a.jsonl": '{"src": "a", "text": "b"}', "b.json": '[{"source": 1},', "c.json": "3", "d.jsonl": "\n", "e.txt": ""}
    for name, content in contents.items():
        (texts / name).write_text(content)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "lines.json").write_text('{"source": "a", "instruction": "b"}\n' * 2)
    (tmp_path / "list.jsonl").write_text('[{"source": "a", "instruction": "b"}]')
    (tmp_path / "wide.csv").write_bytes("source,instruction,edited\na,b,c\n".encode("utf-16"))
    with pytest.raises(ValueError, match=sentence) as error:
        everything(TableEdits.model_validate({"dataset": "table", **config, "path": f"{tmp_path}/{config['path']}"}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["[2024]", "what?", "a*"])
def test_a_path_with_the_signs_of_a_pattern_is_itself_where_it_is_there(tmp_path: Path, name: str) -> None:
    for folder in (name, "2", "whats", "ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text(f"source,instruction,edited\n,{folder},\n" if folder == name else "other\n1\n")
    (row,) = everything(TableEdits(dataset="table", path=str(tmp_path / name / "a.csv")))
    assert isinstance(row, Quarantined) and row.reason == "missing-image"


def test_unknown_preset_is_one_sentence(tmp_path: Path) -> None:
    from pipeline import config

    (tmp_path / "x.yaml").write_text(
        "name: x\nfilter:\n  input: {dataset: table, path: x, preset: omnedit}\n  selections: [{name: a, rule: all}]\n"
    )
    with pytest.raises(ValueError, match=r"filter\.input\.preset") as error:
        config.load(tmp_path / "x.yaml")
    assert "omniedit" in str(error.value)


def test_everything_reads_through_urls(tmp_path: Path, triplets: list[Triplet]) -> None:
    omniedit(tmp_path / "omni", triplets)
    write_tars(tmp_path / "tars", triplets)
    editreward_data(tmp_path / "rated", triplets)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/readers/{path.relative_to(tmp_path)}", path.read_bytes())
    configs: list[tuple[type[Any], dict[str, Any]]] = [
        (TableEdits, {"dataset": "table", "path": "omni", "preset": "omniedit"}),
        (TableEdits, {"dataset": "table", "path": "omni/data/train-*.parquet", "preset": "omniedit"}),
        (WebdatasetEdits, {"dataset": "webdataset", "path": "tars"}),
        (EditRewardDataEdits, {"dataset": "editreward-data", "path": "rated"}),
    ]
    for kind, values in configs:
        local = everything(kind(**values | {"path": f"{tmp_path}/{values['path']}"}))
        assert everything(kind(**values | {"path": f"memory://readers/{values['path']}"})) == local and len(sound(local)) >= 10


def editreward_data(folder: Path, triplets: list[Triplet]) -> EditRewardDataEdits:
    """Ten sources with three candidates each, in all three pairs of each, as on the card."""
    rows = []
    for number, triplet in enumerate(triplets):
        candidates = [triplets[(number + step) % len(triplets)]["edited"] for step in range(3)]
        for pair, (left, right) in enumerate([(0, 1), (0, 2), (1, 2)]):
            row = {
                "key": f"key{number}",
                "unique_key": f"key{number}-{pair}",
                "pair_index": pair,
                "instruction": triplet["instruction"],
                "source_img": image(triplet["source"]),
                "vote_type": "leftvote",
                "metadata_index": number,
            }
            for side, which in (("left", left), ("right", right)):
                row |= {f"{side}_output_image": image(candidates[which]), f"{side}_img_rel": f"m{which}/{number}.png"}
                row |= {f"{side}_model": f"m{which}"}
                row |= {f"{side}_{score}_score": float(which) for score in ("overall", "instruction_following", "quality_aesthetic")}
            rows.append(row)
    images = ("source_img", "left_output_image", "right_output_image")
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", rows[:17], images, group=5)
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", rows[17:], images, group=5)
    return EditRewardDataEdits(dataset="editreward-data", path=str(folder))


def test_editreward_data_gives_each_candidate_once(tmp_path: Path, triplets: list[Triplet]) -> None:
    config = editreward_data(tmp_path, triplets)
    found = sound(everything(config))
    assert len(found) == 30
    for number, triplet in enumerate(triplets):
        three = [edit for edit in found if json.loads(edit.metadata)["key"] == f"key{number}"]
        assert [edit.edited for edit in three] == [triplets[(number + step) % len(triplets)]["edited"] for step in range(3)]
        assert {(edit.source, edit.instruction) for edit in three} == {(triplet["source"], triplet["instruction"])}
        assert [json.loads(edit.metadata)["overall"] for edit in three] == [0.0, 1.0, 2.0]
        assert [edit.editor for edit in three] == [json.loads(edit.metadata)["model"] for edit in three]
    picked(config, 30)
    write_parquet(tmp_path / "other" / "x.parquet", [{"key": "a", "left_img_rel": "b"}])
    with pytest.raises(ValueError, match="has no column instruction; it has key, left_img_rel"):
        everything(config.model_copy(update={"path": str(tmp_path / "other")}))


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def write_tars(folder: Path, triplets: list[Triplet], *, per_tar: int = 6) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(triplets), per_tar):
        with tarfile.open(folder / f"train-{first:04d}.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for number, triplet in enumerate(triplets[first : first + per_tar], start=first):
                add(archive, f"{number:03d}.source.png", triplet["source"])
                add(archive, f"{number:03d}.edited.png", triplet["edited"])
                add(archive, f"{number:03d}.json", json.dumps({"instruction": triplet["instruction"], "task": "add"}).encode())


def test_webdataset_triplets(tmp_path: Path, triplets: list[Triplet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.datasets.webdataset.BLOCK_SAMPLES", 4)
    write_tars(tmp_path, triplets)
    config = WebdatasetEdits(dataset="webdataset", path=str(tmp_path), licence="CC0")
    entries = everything(config)
    holds(entries, triplets)
    assert {(edit.task, edit.licence, edit.metadata) for edit in sound(entries)} == {("add", "CC0", "{}")}
    picked(config, len(triplets))


@pytest.mark.parametrize("named", [{}, {"editor": ["flux-1", "qwen-1"], "seed": [3, 4]}, {"editor": "one", "seed": 5}])
def test_edits_of_one_webdataset_sample_have_their_own_editor_and_seed(
    tmp_path: Path, triplets: list[Triplet], named: dict[str, Any]
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for field, triplet in (("source", triplets[0]), ("flux", triplets[0]), ("qwen", triplets[1])):
            add(archive, f"0.{field}.png", triplet["source" if field == "source" else "edited"])
        add(archive, "0.json", json.dumps({"instruction": "x", "note": [1, 2]} | named).encode())
    found = sound(everything(WebdatasetEdits(dataset="webdataset", path=str(tmp_path / "a.tar"), edited=("flux", "qwen"))))
    editors, seeds = named.get("editor", ["flux", "qwen"]), named.get("seed", [None, None])
    both = [(editors, seeds)] * 2 if isinstance(editors, str) else list(zip(editors, seeds, strict=True))
    assert [(edit.row_id, edit.editor, edit.seed) for edit in found] == [
        (f"0.{field}", editor, "" if seed is None else str(seed)) for field, (editor, seed) in zip(("flux", "qwen"), both, strict=True)
    ]
    metadata = [{"note": [1, 2], "editor": editor} | ({} if seed is None else {"seed": seed}) for editor, seed in both]
    assert [json.loads(edit.metadata) for edit in found] == metadata


def test_webdataset_with_other_fields_and_damage(tmp_path: Path, triplets: list[Triplet]) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, triplet in enumerate(triplets[:3]):
            add(archive, f"in/{number}.jpg", triplet["source"])
            if number != 1:
                add(archive, f"in/{number}.jpg2", triplet["edited"])
            add(archive, f"in/{number}.txt", triplet["instruction"].encode() if number != 2 else b" \n")
    config = WebdatasetEdits(dataset="webdataset", path=str(tmp_path / "a.tar"), source="jpg", edited="jpg2", text="txt")
    entries = everything(config)
    holds(entries[:1], triplets[:1])
    assert set_aside(entries) == {"a.tar[1]": "missing-image", "a.tar[2]": "empty-instruction"}
    assert "it has jpg, txt" in next(entry.message for entry in entries if isinstance(entry, Quarantined))
    with pytest.raises(ValueError, match=r"the samples of .*a\.tar have no member source; the first has jpg, jpg2, txt"):
        everything(WebdatasetEdits(dataset="webdataset", path=str(tmp_path / "a.tar")))
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        add(archive, "in/2.jpg", triplets[0]["source"])
    with pytest.raises(ValueError, match=r"the key in/2 is in a.tar and in b.tar; a key names one sample"):
        everything(config.model_copy(update={"path": str(tmp_path)}))
    (tmp_path / "b.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"b.tar .*download it again"):
        everything(config.model_copy(update={"path": str(tmp_path)}))


def test_our_own_shards_are_read_back(tmp_path: Path, triplets: list[Triplet]) -> None:
    scores = {"overall": {"mean": 1.0, "sigma": 0.1}}
    facts = {"language": "en", "task": "", "licence": "MIT", "scores": scores, "selection": {"rank": 0}}
    samples = [
        shards.Sample(f"{number:024d}", t["source"], "", t["edited"], "", facts | {"instruction": t["instruction"]})
        for number, t in enumerate(triplets)
    ]
    shards.write_shard(str(tmp_path), shards.shard_name(0), samples[:5])
    shards.write_shard(str(tmp_path), shards.shard_name(1), samples[5:])
    entries = everything(WebdatasetEdits(dataset="webdataset", path=str(tmp_path)))
    holds(entries, triplets)
    assert json.loads(sound(entries)[0].metadata)["scores"] == scores and sound(entries)[0].licence == "MIT"


def test_candidates_of_a_run(generated: Path) -> None:
    config = CandidateEdits(dataset="candidates", path=str(generated))
    entries = everything(config, 7)
    found = [entry for entry in entries if isinstance(entry, edits.Edit)]
    step = edits.candidates.RunDir(generated).step("generate")
    candidates, sources = step.read("candidates").to_pylist(), {row["source_id"]: row for row in step.read("sources").to_pylist()}
    order = {name: number for number, name in enumerate(sources)}
    candidates.sort(key=lambda row: order[row["source_id"]])  # source by source, though every editor has tables of its own
    assert [entry.row_id for entry in entries] == [row["candidate_id"] for row in candidates]
    for edit, row in zip(found, [row for row in candidates if row["status"] == "ok"], strict=True):
        assert edit.licence == row["licence"] == "Apache-2.0"
        source = sources[row["source_id"]]
        assert (edit.source, edit.instruction, edit.task) == (source["image"]["bytes"], source["instruction"], source["task"])
        assert edit.edited == row["image"]["bytes"] and json.loads(edit.metadata)["editor"] == row["editor"]
    picked(config, len(candidates))
    with pytest.raises(ValueError, match="generate is not done"):
        everything(CandidateEdits(dataset="candidates", path=str(generated.parent / "nothing")))


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    """A run directory with a generate step as that step publishes it, without Ray."""
    from stages.config import FlowConfig
    from stages.engine.rundir import Index, RunDir
    from stages.engine.units import publish_unit

    flow = FlowConfig.model_validate(
        {
            "name": "x",
            "world": {"size": 16},
            "generate": {
                "sources": {"dataset": "world", "train": 4, "validation": 2},
                "editors": [{"name": "world/quill", "seeds": [0, 1]}, {"name": "world/anvil", "seeds": [0]}],
                "annotate": 2,
            },
        }
    )
    step = RunDir(tmp_path / "run").step("generate")
    artifacts: dict[str, list[Any]] = {"sources": [], "candidates": []}
    for number, made in enumerate(sources_here(flow, 2)):
        sources = made.tables["sources"]
        tables = [("sources", sources)] + [("candidates", table) for table in candidates_here(flow, sources, tmp_path / str(number))]
        for place, (name, table) in enumerate(tables):
            artifacts[name].append(publish_unit(step.path, f"unit{number}-{place}", {name: table})[name])
    step.publish(Index(step="generate", key="k", settings={}, inputs={}, artifacts=artifacts))
    return tmp_path / "run"


@steady
@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 7))
def test_spans_are_the_rows(sizes: list[int], unit_rows: int) -> None:
    blocks = [Block(f"f{number}", number, rows, f"m{number}") for number, rows in enumerate(sizes)]
    expected = [(b.file, b.start, row, b.mark) for b in blocks for row in range(b.rows)]
    cut: list[Spans] = list(cut_blocks(blocks, unit_rows))
    assert [entry for spans in cut for entry in spans] == list(enumerate(expected))
    assert all(len(spans) == unit_rows for spans in cut[:-1]) and all(0 < len(spans) <= unit_rows for spans in cut)
    assert [spans[place] for spans in cut for place in range(len(spans))] == list(enumerate(expected))


@steady
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12))
def test_places_are_read_in_any_order(wanted: list[tuple[int, int]]) -> None:
    places = [("f", block, row) for block, row in wanted]
    found = read_addressed(places, lambda file, start, first: iter([(file, start, row) for row in range(first, 10)]))
    assert list(found) == places
    with pytest.raises(ValueError, match="f became shorter"):
        list(read_addressed([("f", 0, 10)], lambda file, start, first: iter(range(first, 10))))


VALUES = st.recursive(st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])), st.lists, max_leaves=4)
RECORDS = st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), VALUES, min_size=1), max_size=6)


@settings(steady, max_examples=40)
@given(RECORDS, st.sampled_from([None, 2]), st.booleans(), st.booleans(), st.integers(1, 40))
def test_json_records_are_found_from_everywhere(
    content: list[dict[str, Any]], indent: int | None, ascii_only: bool, by_key: bool, chunk: int
) -> None:
    value: Any = {f"k{number}": record for number, record in enumerate(content)} if by_key else content
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    expected = [{text_tables.KEY: f"k{number}", **record} for number, record in enumerate(content)] if by_key else content
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_tables, "_CHUNK", chunk)
        found = list(text_tables.records(io.BytesIO(data), "x.json"))
        assert [record for _, record in found] == expected
        for number, (begin, _) in enumerate(found):
            assert [record for _, record in text_tables.records(io.BytesIO(data), "x.json", begin)] == expected[number:]


SEPARATORS = st.sampled_from([",", ", ", ",\n", "\r\n\t,", ",,", " "])
ODD_RECORDS = [
    "7", "[1]", '"x"', '{"a": 1, "a": 2}', '{"a": NaN}', '{"é": "\\ud83d\\ude00"}', '{"a": "\udcff"}', '{"a": "}]"}', "{", "]",
    '{"a":' + "[" * 63 + "]" * 63 + "}", '{"a":' + "[" * 64 + "]" * 64 + "}", '{"a": "' + "[" * 80 + '"}', "[" * 1100 + "]" * 1100,
]  # fmt: skip


@settings(steady, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(ODD_RECORDS) | RECORDS.map(lambda found: json.dumps(found[:1])[1:-1]), SEPARATORS), max_size=6),
    st.integers(1, 200),
    st.booleans(),
    st.integers(0, 3),
)
def test_objects_of_a_list_are_read_as_any_value_is(parts: list[tuple[str, str]], chunk: int, exact: bool, cut: int) -> None:
    data = ("[" + "".join(record + separator for record, separator in parts) + "]").encode(errors="surrogateescape")
    data = data[: len(data) - cut]

    def found() -> list[object]:
        entries: list[object] = []
        with mock.patch.object(text_tables, "_CHUNK", chunk):
            try:
                decoder = text_tables.EXACT if exact else json.JSONDecoder()
                entries.extend(text_tables.records(io.BytesIO(data), "x.json", decoder=decoder))
            except ValueError as error:
                entries.append(str(error))
        return entries

    with mock.patch.object(text_tables._Text, "objects", lambda _: iter(())):
        expected = found()
    assert repr(found()) == repr(expected)


@pytest.mark.parametrize("chunk", range(1, 12))
def test_a_number_between_records_may_lie_on_two_chunks(chunk: int) -> None:
    data = b'[{"a": 1}, 1.5, 2e+7, {"b": 2}, -3.25]'
    with mock.patch.object(text_tables, "_CHUNK", chunk):
        found = [record for _, record in text_tables.records(io.BytesIO(data), "x.json")]
    bad = [text_tables.Bad(f"the record should be an object, it is {number}") for number in ("1.5", "20000000.0", "-3.25")]
    assert found == [{"a": 1}, *bad[:2], {"b": 2}, bad[2]]


@pytest.mark.parametrize("record", ['{"a": "x"y"}', '{"a": "x,\n', pytest.param('{"a": ' + "1" * 5000 + "}", id="digits"), '{"a": tru}'])
def test_a_damaged_record_is_named_without_reading_on_to_the_end(record: str) -> None:
    file = io.BytesIO(("[{}, " + record + ", {}" * 100_000 + "]").encode())
    with mock.patch.object(text_tables, "_CHUNK", 10_000), pytest.raises(ValueError, match=r"x\.json is not valid JSON after byte 5 "):
        list(text_tables.records(file, "x.json"))
    assert file.tell() <= 30_000


ODD_LINES = [
    b"", b" \t", b"{", b"[1]", b"7 8", b'{"a": 1}{"b": 2}', b'{"a": 1},', b' {"a": 1}\r', b'\xef\xbb\xbf{"a": 1}', b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}', b'{"a": "\\uD83d\\ude00"}', b'{"a": "\\udc00"}', b'{"a": "\0"}', '{"a": "é"}'.encode(),
    '{"a": 1}'.encode("utf-16"), b'{"a": 1, "a": NaN}', b'{"a":' + b"[" * 63 + b"]" * 63 + b"}",
    b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", b'{"a": "' + b"[" * 80 + b'"}', b"[" * 5000 + b"]" * 5000,
]  # fmt: skip


@settings(steady, max_examples=60)
@given(st.lists(st.sampled_from(ODD_LINES) | st.binary(max_size=9) | RECORDS.map(lambda found: json.dumps(found[:1])[1:-1].encode())))
def test_lines_are_read_as_the_json_module_reads_them(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(content)
        file.flush()
        blocks = list(text_blocks.blocks(file.name, 2))
    found = {number: record for block in blocks for number, record in zip(block.lines().tolist(), block.records, strict=True)}
    there = {number: line for number, line in enumerate(io.BytesIO(content), 1) if line.strip()}
    assert found.keys() == there.keys() and all(block.records for block in blocks)
    for number, line in there.items():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        sound = isinstance(value, dict) and not text_tables.is_nested(value)
        assert repr(found[number]) == repr(value) if sound else isinstance(found[number], text_tables.Bad)
    for block in blocks:
        assert not block.is_text() or all(is_text(record) for record in block.records if isinstance(record, dict))
    ends = [*(block.begin for block in blocks), len(content)][1:]
    assert [block.data for block in blocks] == [content[block.begin : end] for block, end in zip(blocks, ends, strict=True)]


def test_a_blank_first_line_behind_a_byte_order_mark_is_no_record() -> None:
    found = list(text_tables.records(io.BytesIO(b'\xef\xbb\xbf \r\n{"a": 1}\n'), "x.jsonl"))
    assert found == [(6, {"a": 1})] and not list(text_tables.records(io.BytesIO(b"\xef\xbb\xbf"), "x.jsonl"))


@steady
@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), min_size=2, max_size=2), max_size=6))
def test_csv_records_are_found_from_everywhere(rows: list[list[str]]) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([["a", "b"], *rows])
    data = buffer.getvalue().encode()
    found = list(text_tables.records(io.BytesIO(data), "x.csv"))
    parsed = [record for _, record in found]
    assert parsed == [dict(zip("ab", cells, strict=True)) for cells in csv.reader(io.StringIO(buffer.getvalue(), newline=""))][1:]
    for number, (begin, _) in enumerate(found):
        assert [record for _, record in text_tables.records(io.BytesIO(data), "x.csv", begin)] == parsed[number:]


MEASURE = """
import json, sys, tracemalloc
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from stages.datasets import readers as edits
from stages.datasets.config import TableEdits

image = {"bytes": b"x" * 2000, "path": None}
struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
schema = pa.schema([("source", struct), ("instruction", pa.string()), ("edited", struct)])
rows_1000 = pa.Table.from_pylist([{"source": image, "instruction": "x", "edited": image}] * 1000, schema=schema)
for rows in (2000, 20_000):
    folder = Path(sys.argv[1]) / str(rows)
    folder.mkdir()
    with pq.ParquetWriter(folder / "t.parquet", schema, compression="none", use_dictionary=False) as writer:
        for _ in range(rows // 1000):
            writer.write_table(rows_1000)
    with open(folder / "t.jsonl", "w") as file:
        for number in range(rows):
            file.write(json.dumps({"source": "a.png", "instruction": f"edit {number}", "edited": "b.png"}) + "\\n")
    for name in ("t.parquet", "t.jsonl"):
        tracemalloc.start()
        plan = edits.plan(TableEdits(dataset="table", path=str(folder / name)), seed=0, world=None, unit_rows=500)
        print(sum(len(piece.rows) for piece in plan), *tracemalloc.get_traced_memory())
        tracemalloc.stop()
    whole = edits.plan(TableEdits(dataset="table", path=str(folder / "t.parquet")), seed=0, world=None, unit_rows=10**9)[0]
    before = pa.total_allocated_bytes()
    print(max(pa.total_allocated_bytes() - before for entry in edits.fetch(whole)))
"""


def test_memory_of_plans_and_fetches_does_not_grow_with_rows(tmp_path: Path) -> None:
    """In a process of its own: ten times the rows, hardly more memory."""
    run = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = [[int(number) for number in line.split()] for line in run.stdout.splitlines()]
    (parquet, lines, fetched), (parquet_10, lines_10, fetched_10) = printed[:3], printed[3:]
    assert parquet[0] == lines[0] == 2000 and parquet_10[0] == lines_10[0] == 20_000
    assert (parquet_10[1] - parquet[1]) / 18_000 < 3 and (lines_10[1] - lines[1]) / 18_000 < 6, "bytes that a plan holds per row"
    assert (lines_10[2] - lines[2]) / 18_000 < 10, "bytes per row at the peak of planning"
    assert fetched_10[0] - fetched[0] < 4000 * 100, "the peak of reading rows of 4,000 bytes grows by less than 100 rows"


def test_a_plan_of_a_server_is_that_of_a_local_folder(bucket: str, tmp_path: Path) -> None:
    """Footers and tars are read at the same time, and are planned in their order."""
    for number in range(40):
        pq.write_table(
            pa.table({"source": ["a"] * 3, "instruction": [f"{number}"] * 3, "edited": ["b"] * 3}), tmp_path / f"{number:02}.parquet"
        )
        with tarfile.open(tmp_path / f"{number:02}.tar", "w") as archive:
            for name in ("source.png", "edited.png", "json"):
                archive.addfile(tarfile.TarInfo(f"{number}.{name}"))
    fsspec.filesystem(bucket.split(":")[0]).put([str(path) for path in sorted(tmp_path.iterdir())], f"{bucket}/plan/")

    def planned(folder: str, kind: str) -> list[Any]:
        config: EditsInput = (
            TableEdits(dataset="table", path=folder) if kind == "table" else WebdatasetEdits(dataset="webdataset", path=folder)
        )
        return [piece.fingerprint for piece in edits.plan(config, seed=0, world=None, unit_rows=7)]

    for kind in ("table", "webdataset"):
        assert planned(f"{bucket}/plan", kind) == planned(str(tmp_path), kind)
