"""Verdicts on edits: one unit is the edits of one piece, judged by one judge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.config import FlowConfig
from stages.engine import contracts, storage
from stages.engine.units import UnitOutput, Work
from stages.evaluate_editor.generation import at_size_of, image_of
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.judge import Judge
from stages.evaluate_editor.verdict import HEADLINE, JudgedEdit, Verdict

FAILED_CALLS = "failed_calls"
"""Figure of a unit: edits without a verdict because a call of the judge failed."""


@dataclass(frozen=True)
class JudgingPiece:
    """The edits of the items ``first`` to ``first + count`` in a file of the table ``benchmark_edits``."""

    edits: str
    first: int
    count: int


def make_work(flow: FlowConfig, judge: Judge, replies: Path, environment: Mapping[str, str] | None = None) -> Work:
    """What a worker does with a piece: its verdicts as tables. ``environment``: variables of the judge, of the process that was started."""
    config = flow.evaluate_editor
    assert config is not None
    os.environ.update(environment or {})
    judge_edits = judge.open(replies)

    def work(piece: JudgingPiece) -> UnitOutput:
        rows = storage.read_table(piece.edits).to_pylist()
        items = {(item.item_id, item.language): item for item in config.items.read(flow, piece.first, piece.count)}
        pairs = []
        for row in rows:
            item, edit = items[row["item_id"], row["language"]], image_of(row)
            if isinstance(item, Item) and edit is not None:
                pairs.append((item, at_size_of(item.image, edit)))
        given = judge_edits([item for item, _ in pairs], [edit for _, edit in pairs])
        verdicts = {(item.item_id, item.language): verdict for (item, _), verdict in zip(pairs, given, strict=True)}
        tables = _tables(rows, verdicts, judge)
        prompt, completion = (sum(verdict.tokens[side] for verdict in given) for side in (0, 1))
        figures = {"prompt_tokens": float(prompt), "completion_tokens": float(completion)}
        figures[FAILED_CALLS] = float(sum(verdict.status == "api_error" for verdict in given))
        return UnitOutput(tables, rows_in=piece.count, rows_out=len(rows), figures=figures)

    return work


def _tables(rows: Sequence[Mapping[str, Any]], verdicts: Mapping[tuple[str, str], Verdict], judge: Judge) -> dict[str, pa.Table]:
    """An edit that there is not has the status missing."""
    found, subscores = [], []
    for row in rows:
        verdict = verdicts.get((row["item_id"], row["language"])) or Verdict("missing", raw=row["error"], attempts=0)
        assert verdict.status != "ok" or set(verdict.scores) == set(judge.subscores), f"{judge.name} should give {judge.subscores}"
        named = {"item_id": row["item_id"], "language": row["language"], "arm": row["arm"], "judge": judge.label}
        named |= {"judge_revision": judge.revision}
        found.append(
            named
            | {name: row[name] for name in ("task", "subsets", "edit_id")}
            | {"judge_snapshot": verdict.snapshot, "attempts": verdict.attempts}
            | {"prompt_tokens": verdict.tokens[0], "completion_tokens": verdict.tokens[1]}
            | {"overall": verdict.overall, "status": verdict.status, "raw": verdict.raw}
            | {name: verdict.scores.get(name) for name in HEADLINE}
        )
        subscores += [named | {"subscore": name, "score": score} for name, score in verdict.scores.items() if name not in HEADLINE]
    tables = {"verdicts": contracts.table("verdicts", found)}
    if set(judge.subscores) - set(HEADLINE):
        tables["subscores"] = contracts.table("subscores", subscores)
    return tables


def judged_edits(verdicts: pa.Table, subscores: pa.Table) -> dict[str, list[JudgedEdit]]:
    """One judge's verdicts by system."""
    further: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in subscores.to_pylist():
        further.setdefault((row["arm"], row["item_id"], row["language"]), {})[row["subscore"]] = row["score"]
    found: dict[str, list[JudgedEdit]] = {}
    for row in verdicts.to_pylist():
        scores = {name: row[name] for name in HEADLINE if row[name] is not None}
        scores |= further.get((row["arm"], row["item_id"], row["language"]), {})
        tokens = row["prompt_tokens"], row["completion_tokens"]
        verdict = Verdict(row["status"], scores, row["overall"], row["raw"], row["judge_snapshot"], row["attempts"], tokens)
        found.setdefault(row["arm"], []).append(
            JudgedEdit(row["item_id"], row["task"], verdict, row["language"], tuple(row["subsets"] or ()))
        )
    return found
