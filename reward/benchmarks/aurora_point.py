"""AURORA-Bench, single ratings: how people rated each edit (Krojer et al. 2024, arXiv 2407.03471; see ``aurora_pair`` for where it comes
from).

Folder: pointwise.json, a list of records {prompt, input, gen, score, model}, and the images, whose paths are relative to the folder.

Published convention: the plain mean over editors of Spearman's rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reward.benchmarks import ratings
from reward.benchmarks.items import BenchmarkEdit, Rating, Scores
from reward.benchmarks.pictures import from_file
from reward.benchmarks.result import BenchmarkResult
from reward.benchmarks.tables import json_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap

NAME = "aurora-point"
FILE = "pointwise.json"


def load(path: str | Path) -> list[Rating]:
    """Ratings of the file, in its order."""
    folder = Path(path)
    items = []
    for row in json_rows(folder / FILE, columns=("prompt", "input", "gen", "score", "model")):
        source, edited = (from_file(folder / row.text(column)) for column in ("input", "gen"))
        edit = BenchmarkEdit(source, row.text("prompt"), edited)
        items.append(Rating(f"{FILE}[{row.number}]", edit, row.number_of("score"), row.text("model"), source.content))
    return items


def evaluate(items: Sequence[Rating], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    return ratings.evaluate(NAME, items, scores, bootstrap=bootstrap, published="mean")
