"""Copies of benchmarks that are not laid out as published: one sentence that names file, row and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmark_copies import genai_copy, genai_row, imagenhub_copy, tiger_row, write, write_json

from reward.benchmarks import aurora_point, genai_bench, imagenhub, tiger_editreward_bench
from reward.benchmarks.names import benchmark
from reward.benchmarks.pictures import read


def without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def test_a_copy_that_is_none_is_named(tmp_path: Path) -> None:
    for name in ("tiger-editreward-bench", "editscore-editreward-bench", "genai-bench", "aurora-pair", "aurora-point", "imagenhub"):
        with pytest.raises(ValueError, match="there is no ") as error:
            benchmark(name).load(tmp_path)
        assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"no benchmark 'gedit'; there are tiger-editreward-bench, "):
        benchmark("gedit")


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("candidate_1", "absent", "no column candidate_1; expected id, dataset, "),
        ("candidate_2", {"bytes": None, "path": "x.png"}, "row 1, column candidate_2: there are no image bytes"),
        ("dataset", "5pair", "row 1, column dataset: '5pair' is none of 2pair, 3pair, 4pair"),
        ("ranking", "A>C", "row 1, column ranking: 'A>C' does not order A and B"),
        ("comparison_type", "A-B", "row 1, column comparison_type: 'A-B' does not look like AvsB"),
        ("instruction", None, "row 1, column instruction: expected text, found None"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, column: str, value: Any, sentence: str) -> None:
    sound = tiger_row("2pair", "p1_AvsB", 1, 10, 11, "AvsB", "A>B")
    rows = [without(sound, column)] if value == "absent" else [sound, sound | {column: value}]
    file = write(tmp_path / "2pair" / "train-00000-of-00001.parquet", rows)
    with pytest.raises(ValueError) as error:
        tiger_editreward_bench.load(tmp_path)
    assert sentence in str(error.value) and str(file) in str(error.value)


def test_other_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / "image_edition").mkdir()
    (tmp_path / "image_edition" / "test_v1-00000-of-00001.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ValueError, match="cannot be read as a Parquet table"):
        genai_bench.load(tmp_path)
    write_json(tmp_path / "pointwise.json", [{"prompt": "p", "input": "x", "gen": "y", "model": "m"}])
    with pytest.raises(ValueError, match=r"pointwise\.json, record 0, has no column score; expected prompt, input, gen, score, model"):
        aurora_point.load(tmp_path)
    copy = imagenhub_copy(tmp_path / "hub")
    file = copy / "ratings" / "Text-Guided_IE_rater2.tsv"
    file.write_text(file.read_text().replace("[1,0.5]", "[1,0.7]"))
    with pytest.raises(ValueError, match=r"rater2\.tsv, line 3, column Max: '\[1,0\.7\]' is not a cell"):
        imagenhub.load(copy)


def test_an_image_that_changes_is_noticed(tmp_path: Path) -> None:
    items = genai_bench.load(genai_copy(tmp_path))
    genai_copy(tmp_path)
    write(tmp_path / "image_edition" / "test_v1-00000-of-00001.parquet", [genai_row(9, 91, 92, "leftvote")] * 5)
    with pytest.raises(ValueError, match="row 0, column source_image changed while"):
        read([items[0].first.source])
