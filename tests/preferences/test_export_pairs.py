"""Exported pairs: other programs read the content of the run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rated_run import candidates as made_candidates
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from pipeline.cli import main
from stages.annotate import step as annotate
from stages.context import Context
from stages.engine import storage
from stages.engine.images import png
from stages.preferences import step as preferences
from stages.preferences.config import PreferencesConfig
from stages.preferences.export_pairs import export_pairs
from stages.preferences.layouts import hub

IF, VQ = "instruction_following", "visual_quality"


def rated(path: Path, ties: Any = "opposed", groups: int = 20) -> Context:
    context = make_run(path, groups=groups)
    context = Context(context.run, context.flow.model_copy(update={"preferences": PreferencesConfig(ties=ties)}), context.cluster)
    annotate.ingest(context, annotate.simulate(context))
    preferences.run(context)
    return context


def pairs_of(context: Context) -> list[dict[str, Any]]:
    return context.run.step("preferences").read("pairs").to_pylist()


@pytest.mark.parametrize("ties", ["opposed", "all", "soft"])
def test_reference_json_prefers_the_first_image(tmp_path: Path, ties: str) -> None:
    context = rated(tmp_path / "run", ties)
    made = export_pairs(context.run, "reference-json", tmp_path / "out", path_prefix="data/")
    records = {split: json.loads((tmp_path / "out" / f"{split}.json").read_text()) for split in ("train", "validation")}
    strict = [row for row in pairs_of(context) if row["label"] != "tie"]
    assert made.pairs == {split: len(rows) for split, rows in records.items()}
    assert (
        sum(made.pairs.values()) == len(strict) and sum(made.left_out.values()) == len(pairs_of(context)) - len(strict) > 0
    ) or ties == "all"
    images = {row["candidate_id"]: row["image"]["bytes"] for n in range(20) for row in made_candidates(n)}
    for row, record in zip([r for r in strict if r["split"] == "train"], records["train"], strict=True):
        first, second = ("a", "b") if row["label"] == "a" else ("b", "a")
        assert list(record)[:8] == ["prompt", "choice_dist", "confidence", "path_src", "path1", "path2", "model1", "model2"]
        keys = [f"model{n}_{name}_score" for n in (1, 2) for name in ("dim1", "dim2", "overall")]
        assert list(record)[8:] == [*keys, "tie_case"], "the public loader keeps the last dim key, so their order matters"
        assert record["model1_overall_score"] >= record["model2_overall_score"]
        assert record["model1_dim1_score"] == row["dimensions"][0][f"score_{first}"]
        assert record["model2_dim2_score"] == row["dimensions"][1][f"score_{second}"]
        assert record["tie_case"] == (row["origin"] != "plain") == (record["model1_overall_score"] == record["model2_overall_score"])
        assert record["choice_dist"] is record["confidence"] is None
        file = tmp_path / "out" / record["path1"].removeprefix("data/")
        assert file.read_bytes() == images[row[f"candidate_{first}"]]
        assert (tmp_path / "out" / record["path_src"].removeprefix("data/")).exists()


def test_an_export_is_whole_the_same_everywhere_and_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        context = rated(tmp_path / name)
        (tmp_path / f"{name}-json").mkdir()
        export_pairs(context.run, "reference-json", tmp_path / f"{name}-json")
        export_pairs(context.run, "hub", tmp_path / f"{name}-hub", licence="cc-by-4.0")
    for layout in ("json", "hub"):
        assert storage.tree_hashes(tmp_path / f"a-{layout}") == storage.tree_hashes(tmp_path / f"b-{layout}")
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        export_pairs(context.run, "reference-json", tmp_path / "a-json")
    monkeypatch.setattr(hub.hub_card, "card", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        export_pairs(context.run, "hub", tmp_path / "cut", licence="other")
    assert not (tmp_path / "cut").exists() and not list(tmp_path.glob(f"{storage.TEMPORARY}*"))
    with pytest.raises(ValueError, match="--licence: a Hub data set states its licence"):
        export_pairs(context.run, "hub", tmp_path / "none")
    with pytest.raises(ValueError, match="--licence does not belong to the layout reference-json"):
        export_pairs(context.run, "reference-json", tmp_path / "none", licence="other")
    with pytest.raises(ValueError, match="step preferences is not done"):
        export_pairs(make_run(tmp_path / "fresh").run, "reference-json", tmp_path / "none")


def test_the_prefix_is_put_before_every_path_once(tmp_path: Path) -> None:
    context, put = rated(tmp_path / "run", groups=6), []

    class Prefix(str):
        def __add__(self, path: str) -> str:
            put.append(path)
            return str(self) + path

    export_pairs(context.run, "reference-json", tmp_path / "out", path_prefix=Prefix("data/"))
    assert len(pairs_of(context)) > 6 and len(put) == 6 * (1 + 4), "work grows with the images, not with pairs times images"


def test_no_annotator_is_in_an_export(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run")
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context), "annotator-7"))])
    preferences.run(context)
    export_pairs(context.run, "reference-json", tmp_path / "json")
    export_pairs(context.run, "hub", tmp_path / "hub", licence="other")
    for path in [*(tmp_path / "json").rglob("*.*"), *(tmp_path / "hub").rglob("*.*")]:
        text = repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else path.read_bytes()
        assert b"annotator-7" not in text


def test_the_hub_folder_loads_with_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the datasets library is not installed; it is no dependency of the project")
    import numpy as np
    from PIL import Image

    def drawn(number: int) -> list[dict[str, Any]]:
        rows = made_candidates(number)
        pixels = [np.full((8, 8, 3), 12 * place + number, np.uint8) for place in range(len(rows))]
        return [row | {"image": {"bytes": png(image), "path": None}} for row, image in zip(rows, pixels, strict=True)]

    monkeypatch.setattr("rated_run.candidates", drawn)
    monkeypatch.setattr(hub, "ROWS_WITH_IMAGES", 5)
    context = rated(tmp_path / "run")
    made = export_pairs(context.run, "hub", tmp_path / "hub", licence="cc-by-4.0")
    load = {name: datasets.load_dataset(str(tmp_path / "hub"), name, cache_dir=str(tmp_path / "cache")) for name in ("pairs", "candidates")}
    assert {split: rows.num_rows for split, rows in load["pairs"].items()} == made.pairs
    rows = {row["pair_id"]: row for split in made.pairs for row in load["pairs"][split]}
    edits = {row["candidate_id"]: row for split in made.pairs for row in load["candidates"][split]}
    assert len(list((tmp_path / "hub" / "candidates").glob("train-*"))) > 1, "several files"
    for pair in pairs_of(context):
        row = rows[pair["pair_id"]]
        assert (row["label"], row["origin"], row["gap"], row["raters"]) == (pair["label"], pair["origin"], pair["gap"], pair["raters"])
        assert row[f"a_{IF}"] == pair["dimensions"][0]["score_a"] == edits[pair["candidate_a"]][IF]
        assert row[f"label_{VQ}"] == pair["dimensions"][1]["label"]
    data = {row["candidate_id"]: row["image"]["bytes"] for number in range(20) for row in drawn(number)}
    for name, edit in edits.items():
        assert np.array_equal(np.asarray(edit["image"]), np.asarray(Image.open(io.BytesIO(data[name]))))
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "license: cc-by-4.0" in card and "Ties are treated by the rule `opposed`" in card and "| world/quill |" in card
    for column in load["pairs"]["train"].column_names:
        assert f"| `{column}` |" in card


def test_the_command(tmp_path: Path) -> None:
    context = rated(tmp_path / "run")
    (context.run.path / "config.yaml").write_text("name: test\n")
    target = tmp_path / "out"
    arguments = ["export", "pairs", "--run", str(context.run.path), "--format", "reference-json", "--target", str(target)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 and "pairs for train" in result.output and "left out" in result.output, result.output
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 1 and again.output.startswith("error: ") and "not an empty folder" in again.output
