"""Sources in the layouts of six published sets and of one's own, made from real images; quotas, marks, and rows that no editor gets."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from generate_here import sources_here
from PIL import Image

from stages.config import FlowConfig
from stages.datasets import readers
from stages.datasets.config import TableSources
from stages.engine.contracts import IMAGE
from stages.engine.units import UnitOutput

Picture = tuple[str, bytes]


@pytest.fixture(scope="module")
def pictures(shared_data: Path) -> list[Picture]:
    """Names and bytes of six photographs of different scenes."""
    files = sorted((shared_data / "triplets" / "magicbrush").glob("*-input.jpg"))[:6]
    return [(file.name, file.read_bytes()) for file in files]


def parquet(path: Path, rows: list[dict[str, Any]], *images: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    for name in images:
        cells = [{"bytes": row[name], "path": None} for row in rows]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(cells, IMAGE))
    pq.write_table(table, path, row_group_size=2)


def unpack(folder: Path, pictures: list[Picture]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in pictures:
        (folder / name).write_bytes(data)


def gedit_bench(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    """Each source in two languages, with its key twice."""
    rows = [
        {"task_type": "ps_human", "key": str(number), "instruction": text, "instruction_language": language, "input_image": data}
        for number, (_, data) in enumerate(pictures)
        for language, text in (("en", "make it red"), ("cn", "把它变红"))
    ]
    parquet(folder / "data" / "train-00000-of-00001.parquet", rows, "input_image")
    only = {"instruction_language": ["en"]}
    return {"name": "gedit-bench", "path": str(folder), "preset": "gedit-bench", "only": only, "expected": len(pictures)}


def imgedit_bench(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    unpack(folder / "singleturn" / "animal", pictures)
    items = {str(n): {"id": f"animal/{name}", "prompt": "remove it", "edit_type": "remove"} for n, (name, _) in enumerate(pictures)}
    (folder / "singleturn" / "singleturn.json").write_text(json.dumps(items))
    return {"name": "imgedit-bench", "path": f"{folder}/singleturn/singleturn.json", "preset": "imgedit-bench"}


def magicbrush_hub(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    rows = [
        {
            "img_id": str(n // 2),
            "turn_index": n % 2 + 1,
            "source_img": data,
            "mask_img": data,
            "instruction": "add a hat",
            "target_img": data,
        }
        for n, (_, data) in enumerate(pictures)
    ]
    parquet(folder / "data" / "dev-00000-of-00001.parquet", rows, "source_img", "mask_img", "target_img")
    return {"name": "magicbrush", "path": str(folder), "preset": "magicbrush", "benchmark": "magicbrush-dev"}


def magicbrush_test(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    turns = []
    for name, data in pictures:
        number = name.partition("-")[0]
        unpack(folder / "images" / number, [(name, data)])
        turns.append({"input": name, "mask": f"{number}-mask1.png", "output": f"{number}-output1.png", "instruction": "put a cat there"})
    (folder / "edit_turns.json").write_text(json.dumps(turns))
    return {"name": "magicbrush", "path": f"{folder}/edit_turns.json", "images": f"{folder}/images", "preset": "magicbrush-test"}


def anyedit_hub(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    rows = [
        {"edit_type": "add", "edit_instruction": "add a car", "input": "a street", "image_file": data, "edited_file": data}
        for _, data in pictures
    ]
    parquet(folder / "data" / "train-00000-of-00001.parquet", rows, "image_file", "edited_file")
    return {"name": "anyedit", "path": str(folder), "preset": "anyedit"}


def anybench(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    for task, part in (("add", pictures[:3]), ("remove", pictures[3:])):
        unpack(folder / "anybench" / task / "image_file", part)
        items = [
            {
                "edit": "do it",
                "edit_type": task,
                "image_file": f"anybench/{task}/image_file/{name}",
                "edited_file": "x.png",
                "visual_input": None,
            }
            for name, _ in part
        ]
        (folder / "anybench" / task / "edit_result.json").write_text(json.dumps(items))
    return {"name": "anyedit", "path": f"{folder}/anybench/*/edit_result.json", "images": str(folder), "preset": "anybench"}


def emu_edit(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    for split, part in (("validation", pictures[:4]), ("test", pictures[4:])):
        rows = [{"idx": n, "task": "local", "instruction": "paint it", "image": data, "hash": "a"} for n, (_, data) in enumerate(part)]
        parquet(folder / "data" / f"{split}-00000-of-00001.parquet", rows, "image")
    return {"name": "emu-edit", "path": str(folder), "preset": "emu-edit"}


def csv_table(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    unpack(folder, pictures)
    with (folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "instruction", "licence"), *((name, "mach es rot", "CC0-1.0") for name, _ in pictures)])
    return {"name": "mine", "path": f"{folder}/mine.csv"}


def image_folder(folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    """The Hub's folder of images with a file of their columns."""
    unpack(folder, pictures)
    lines = [json.dumps({"file_name": name, "text": "赤くして"}) for name, _ in pictures]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return {"name": "mine", "path": f"{folder}/metadata.jsonl", "columns": {"source": "file_name", "instruction": "text"}}


LAYOUTS = {
    gedit_bench: ("gedit-bench", "MIT"),
    imgedit_bench: ("imgedit-bench", ""),
    magicbrush_hub: ("magicbrush-dev", "CC-BY-4.0"),
    magicbrush_test: ("magicbrush-test", "CC-BY-4.0"),
    anyedit_hub: ("", "CC-BY-4.0"),
    anybench: ("anybench", ""),
    emu_edit: ("emu-edit", "CC-BY-NC-4.0"),
    csv_table: ("", "CC0-1.0"),
    image_folder: ("", ""),
}


def flow(*tables: dict[str, Any], seed: int = 0, **generate: Any) -> FlowConfig:
    sources = {"dataset": "table", "tables": [*tables], "validation_share": 0.5}
    editors = [{"name": "world/quill", "seeds": [0, 1]}]
    return FlowConfig.model_validate(
        {"name": "x", "seed": seed, "generate": {"sources": sources, "editors": editors, "annotate": 2, **generate}}
    )


def rows_of(outputs: list[UnitOutput]) -> list[dict[str, Any]]:
    return [row for output in outputs for row in output.tables["sources"].to_pylist()]


def aside(outputs: list[UnitOutput]) -> list[tuple[str, str]]:
    return [(row.reason, row.message) for output in outputs for row in output.quarantine]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_sources_in_their_published_layouts(tmp_path: Path, pictures: list[Picture], layout: Any) -> None:
    benchmark, licence = LAYOUTS[layout]
    table = layout(tmp_path, pictures)
    outputs = sources_here(flow(table), 4)
    rows = rows_of(outputs)
    assert not aside(outputs)
    assert sorted(row["image"]["bytes"] for row in rows) == sorted(data for _, data in pictures)
    assert len({row["source_id"] for row in rows}) == len(pictures)
    assert {row["benchmark"] for row in rows} == {benchmark} and {row["dataset"] for row in rows} == {table["name"]}
    assert all(row["licence"].startswith(licence) and row["instruction"] for row in rows)


def test_sources_in_tars(tmp_path: Path, pictures: list[Picture]) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, (_, data) in enumerate(pictures):
            for name, content in ((f"{number}.jpg", data), (f"{number}.txt", "Сделай небо розовым".encode())):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    sources = {"dataset": "webdataset", "path": str(tmp_path), "source": "jpg", "text": "txt"}
    rows = rows_of(sources_here(flow(sources=sources)))
    assert [row["image"]["bytes"] for row in rows] == [data for _, data in pictures]


def test_six_sets_together(tmp_path: Path, pictures: list[Picture]) -> None:
    """What several sets share comes once; pictures that are near duplicates are in one split."""
    layouts = (gedit_bench, imgedit_bench, magicbrush_test, anybench, emu_edit, csv_table)
    tables = [layout(tmp_path / layout.__name__, pictures) for layout in layouts]
    again = Image.open(io.BytesIO(pictures[0][1]))
    (tmp_path / "own").mkdir()
    again.resize((300, 300)).save(tmp_path / "own" / "small.png")
    (tmp_path / "own" / "mine.jsonl").write_text(
        "\n".join(json.dumps({"image": image, "instruction": text}) for image, text in (("small.png", "new"), ("small.png", "new")))
    )
    outputs = sources_here(flow(*tables, {"name": "own", "path": f"{tmp_path}/own/mine.jsonl"}), 4)
    rows = rows_of(outputs)
    assert Counter(row["benchmark"] for row in rows) == Counter(
        {"gedit-bench": 6, "imgedit-bench": 6, "magicbrush-test": 6, "anybench": 6, "emu-edit": 6, "": 7}
    )
    assert aside(outputs) == [("duplicate", "image and instruction are those of mine.jsonl[0] of own")]
    first = [row for row in rows if row["image"]["bytes"] == pictures[0][1]]
    (small,) = [row for row in rows if row["dataset"] == "own"]
    assert {(row["group"], row["split"]) for row in first} == {(small["group"], small["split"])}
    assert len({row["group"] for row in rows}) == len(pictures)
    apart = rows_of(sources_here(flow(*tables, {"name": "own", "path": f"{tmp_path}/own/mine.jsonl"}, split_distance=None), 4))
    assert len({row["group"] for row in apart}) == len(pictures) + 1


def test_quotas_are_drawn_by_the_seed(tmp_path: Path, pictures: list[Picture]) -> None:
    table = csv_table(tmp_path, pictures)

    def taken(seed: int, unit_rows: int = 4, **changes: Any) -> list[bytes]:
        return [row["image"]["bytes"] for row in rows_of(sources_here(flow(table | {"take": 3} | changes, seed=seed), unit_rows))]

    assert len(taken(0)) == 3
    assert taken(0) == taken(0, 1) == taken(0, 100)
    assert len({tuple(taken(seed)) for seed in range(8)}) > 2
    assert set(taken(0, take=2)) < set(taken(0))
    assert len(taken(0, take=6)) == 6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"take": 7}, r"generate.sources.tables.0.take: 7 rows of mine are wanted, and .*mine.csv has 6; lower the number, or add files"),
        ({"only": {"licence": ["MIT"]}}, r"generate.sources.tables.0.only: .*mine.csv has no row with licence MIT"),
        ({"only": {"language": ["en"]}}, r"mine.csv has no column language; it has image, instruction, licence"),
        ({"only": {"licence": ["CC0-1.0"]}, "expected": 5}, r"has 6 rows with licence CC0-1.0, the configuration expects 5 of mine"),
    ],
)
def test_quotas_that_cannot_be_met_are_one_sentence(
    tmp_path: Path, pictures: list[Picture], changes: dict[str, Any], sentence: str
) -> None:
    generate = flow(csv_table(tmp_path, pictures) | changes).generate
    assert generate is not None and isinstance(generate.sources, TableSources)
    with pytest.raises(ValueError, match=sentence) as error:
        readers.plan(generate.sources, seed=0, world=None, unit_rows=4, key="generate.sources", edited=False)
    assert "\n" not in str(error.value)


def test_rows_that_no_editor_gets_are_set_aside(tmp_path: Path, pictures: list[Picture]) -> None:
    unpack(tmp_path, pictures[:1])
    Image.new("RGB", (1, 1)).save(tmp_path / "pixel.png")
    Image.new("1", (20_000, 10_000)).save(tmp_path / "huge.png")
    good = {"image": pictures[0][0]}
    rows = [
        {"image": "pixel.png", "instruction": "make it red"},
        {"image": "huge.png", "instruction": "make it red"},
        good | {"instruction": " "},
        good | {"instruction": "x" * 10_000},
        good | {"instruction": "اجعل السماء وردية 🌸"},
        good | {"instruction": "x" * 2000},
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    outputs = sources_here(flow({"name": "mine", "path": f"{tmp_path}/mine.jsonl"}))
    found = aside(outputs)
    assert [reason for reason, _ in found] == ["too-small", "undecodable-image", "empty-instruction", "too-long"]
    assert found[0][1] == "the source image has 1 x 1 pixels; at least 16 on each side are needed"
    assert "200000000 pixels" in found[1][1]
    assert found[3][1] == "the instruction has 10,000 characters; editors read at most about 2,000"
    assert [row["instruction"] for row in rows_of(outputs)] == [rows[4]["instruction"], rows[5]["instruction"]]
