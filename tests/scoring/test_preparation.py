"""Preparation of edits for scoring: what is shared, in which order it comes back, how it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import save_model, save_triplets

from reward import EditSample, RewardModel, Score, score
from reward.inputs.batch import PreparedSample
from stages.datasets import readers as edits
from stages.datasets.config import TripletEdits
from stages.engine.contracts import Quarantined
from stages.filter.scoring import make_scoring
from stages.scoring.preparation import PIECE_BYTES, PIECE_ROWS, Ready, pieces_of, prepare


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and triplets: three sources that take turns, one picture that is none, one instruction of its own."""
    folder = tmp_path_factory.mktemp("triplets")
    save_model(folder / "model")
    save_triplets(folder, count=9)
    damaged = folder / "4-edited.png"
    damaged.write_bytes(damaged.read_bytes()[:200])
    asked = "put a red cat on the seat"
    rows = [{"source": f"{number % 3}-source.png", "instruction": asked, "edited": f"{number}-edited.png"} for number in range(9)]
    rows[8]["instruction"] = "put the cat on a red seat"
    (folder / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def whole(base: Path) -> edits.Slice:
    (piece,) = edits.plan(TripletEdits(dataset="triplets", path=str(base / "turns.jsonl")), seed=0, world=None, unit_rows=50)
    return piece


def test_edits_of_a_source_are_shown_together_and_come_back_in_their_order(base: Path) -> None:
    made = prepare(base / "model", whole(base))
    assert made.order == [0, 3, 6, 1, 7, 2, 5, 8]
    shown = [item for item in made.shown if isinstance(item, PreparedSample)]
    assert [len(item.tree.reads) for item in shown] == [3, 2, 2, 1]
    assert [isinstance(entry, Ready) for entry in made.entries] == [number != 4 for number in range(9)]
    assert isinstance(made.entries[4], Quarantined) and made.entries[4].reason == "undecodable-image"
    model = RewardModel.load(base / "model")
    batch = model.collate(shown)
    pictures = 8 if model.config.presentation.layout == "clip" else 3 + 8
    assert sum(len(stack) for stack in batch.stacks) == pictures


def test_scores_are_those_of_the_edits_alone(base: Path) -> None:
    output = make_scoring(base / "model", "r", 16384, 0, "test")(whole(base))
    rows = output.tables["scores"].to_pylist()
    assert output.tables["edits"]["sample_id"].to_pylist() == [row["sample_id"] for row in rows]
    assert [row.position for row in output.quarantine] == ["turns.jsonl[4]"] and (output.rows_in, output.rows_out) == (9, 8)
    assert {row["scorer_revision"] for row in rows} == {"r"}  # as told: actors do not hash the model
    model = RewardModel.load(base / "model")
    references = output.tables["edits"].to_pylist()
    for reference, row in zip(references, rows, strict=True):
        sample = EditSample(base / reference["source"]["path"], reference["instruction"], base / reference["edited"]["path"])
        (alone,) = score(model=model, samples=[sample])
        assert isinstance(alone, Score) and abs(alone.overall_mean - row["overall_mean"]) < 2e-5
    assert output.figures["edits"] == 8 and output.figures["flop"] > 0 and output.figures["possible_flop"] == 0


def test_pieces_hold_bounded_memory_and_every_row_once(base: Path) -> None:
    piece = whole(base)
    for area, rows in [(1024, 9), (448 * 448, 9), (2048 * 2048, 1), (10**9, 1)]:
        pieces = pieces_of(piece, area)
        assert [row for part in pieces for row in part.rows] == list(piece.rows)
        assert max(len(part.rows) for part in pieces) == rows <= PIECE_ROWS
        assert rows == 1 or rows * 6 * area <= PIECE_BYTES
