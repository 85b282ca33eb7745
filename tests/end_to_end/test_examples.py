"""The examples run as their first lines say, on real images where they are there and on drawn ones otherwise, with a small random model."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from paths import ROOT, SHARED
from PIL import Image

from reward import EditSample, RewardModel, RewardModelConfig, Score, preference, score
from stages.world import items
from stages.world.scenes import render

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("examples")]  # one process makes their edits and model

ALWAYS_WRITTEN = (".lock", ".hashed")
TRIPLETS = SHARED / "triplets" / "triplets.jsonl"


@dataclass(frozen=True)
class Edits:
    """A file of triplets, its rows, and a saved model."""

    path: Path
    rows: list[dict[str, str]]
    model: Path

    def sample(self, row: dict[str, str]) -> EditSample:
        return EditSample(
            (self.path.parent / row["source"]).read_bytes(), row["instruction"], (self.path.parent / row["edited"]).read_bytes()
        )


def real_rows() -> list[dict[str, str]]:
    """Every fifth triplet, and all edits of the one source that has several."""
    rows = [json.loads(line) for line in TRIPLETS.read_text(encoding="utf-8").splitlines()]
    chosen = [row for number, row in enumerate(rows) if number % 5 == 0 or row["set"] == "editreward"]
    folder = TRIPLETS.parent
    return [
        {
            "id": row["id"],
            "source": str(folder / row["source"]),
            "instruction": row["instruction"],
            "edited": str(folder / row["candidate"]),
        }
        for row in chosen
    ]


def drawn_rows(folder: Path) -> list[dict[str, str]]:
    """Exact edits of the toy world, and for the last source its unchanged picture as a second edit."""
    rows = []
    for index in range(9):
        item = items.item(0, "noisy", index)
        for role, scene in (("source", item.scene), ("edited", item.target)):
            Image.fromarray(render(scene, 48)).save(folder / f"{index}-{role}.png")
        rows.append({"id": str(index), "source": f"{index}-source.png", "instruction": item.instruction, "edited": f"{index}-edited.png"})
    return [*rows, rows[-1] | {"id": "again", "edited": rows[-1]["source"]}]


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Edits:
    """The edits, among them one that is damaged; the path of its image is in its folder."""
    folder = tmp_path_factory.mktemp("edits")
    rows = real_rows() if TRIPLETS.exists() else drawn_rows(folder)
    whole = io.BytesIO()
    Image.new("RGB", (64, 64), "teal").save(whole, "PNG")
    (folder / "damaged.png").write_bytes(whole.getvalue()[:60])
    rows.insert(2, rows[0] | {"id": "damaged", "edited": "damaged.png"})
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    RewardModel.from_config(RewardModelConfig(), [row["instruction"] for row in rows], seed=3).save(folder / "model")
    return Edits(path, rows, folder / "model")


def run(example: str, *arguments: object) -> str:
    found = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def printed(edits: Edits) -> list[str]:
    """What `examples/score_edits.py` prints."""
    return run("score_edits.py", edits.model, edits.path).splitlines()


def test_score_edits_prints_the_librarys_scores_best_first(edits: Edits, printed: list[str]) -> None:
    sound = [row for row in edits.rows if row["id"] != "damaged"]
    scores = score(model=RewardModel.load(edits.model), samples=[edits.sample(row) for row in sound])
    assert all(isinstance(result, Score) for result in scores)
    expected = sorted((f"{result.overall_mean:.3f}" for result in scores if isinstance(result, Score)), key=float, reverse=True)
    table = printed[1 : 1 + len(sound)]
    assert [line.split()[0] for line in table] == expected
    assert all(any(line.endswith(f"{row['edited']}: {row['instruction']}") for line in table) for row in sound)
    assert printed[-1].startswith("no score for damaged.png: ") and "decoded" in printed[-1]


def test_score_edits_says_which_of_several_edits_is_best(edits: Edits, printed: list[str]) -> None:
    group = [row for row in edits.rows if (row["source"], row["instruction"]) == (edits.rows[-1]["source"], edits.rows[-1]["instruction"])]
    if TRIPLETS.exists():
        group = [row for row in edits.rows if row["id"].startswith("editreward")]
    assert len(group) > 1
    scores = score(model=RewardModel.load(edits.model), samples=[edits.sample(row) for row in group])
    ranked = sorted(
        ((result, row) for result, row in zip(scores, group, strict=True) if isinstance(result, Score)),
        key=lambda pair: -pair[0].overall_mean,
    )
    certainty = preference(ranked[0][0], ranked[1][0])
    line = f"best of {len(group)} edits of {group[0]['source']}: {ranked[0][1]['edited']}, better than the next with P = {certainty:.2f}"
    assert [printed_line for printed_line in printed if printed_line.startswith("best of ")] == [line]


def test_curate_my_triplets_ends_with_sound_shards_and_repeats_nothing(edits: Edits, tmp_path: Path) -> None:
    arguments = ("curate_my_triplets.py", edits.path, edits.model, tmp_path / "run")
    first = run(*arguments)
    sound = len(edits.rows) - 1
    kept = (sound + 1) // 2
    assert f"edits: {sound + 1} in, {sound} scored, 1 set aside" in first
    assert "edits.jsonl[2]: undecodable-image" in first
    for name in ("selected", "random"):
        assert f"{tmp_path}/run/filter/shards/{name}: {kept} samples, sound" in first
    assert any(f"pixels, {row['instruction']!r}" in first for row in edits.rows)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name not in ALWAYS_WRITTEN}
    second = run(*arguments)
    assert set(second.splitlines()) == set(first.splitlines())
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
