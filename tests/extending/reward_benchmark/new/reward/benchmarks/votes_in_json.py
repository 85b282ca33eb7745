"""Votes on pairs of edits, from a JSON list of records {source, instruction, first, second, vote} beside its images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reward.benchmarks import pairs
from reward.benchmarks.items import BenchmarkEdit, Comparison, Scores
from reward.benchmarks.pictures import from_file
from reward.benchmarks.result import BenchmarkResult
from reward.benchmarks.tables import json_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap


def load(path: str | Path) -> list[Comparison]:
    """Comparisons in the order of the file."""
    folder = Path(path)
    items = []
    for row in json_rows(folder / "votes.json", columns=("source", "instruction", "first", "second", "vote")):
        source, *edited = (from_file(folder / row.text(column)) for column in ("source", "first", "second"))
        first, second = (BenchmarkEdit(source, row.text("instruction"), image) for image in edited)
        items.append(Comparison(str(row.number), first, second, int(row.number_of("vote")), source=source.content))
    return items


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    return pairs.evaluate("votes-in-json", items, scores, bootstrap=bootstrap)
