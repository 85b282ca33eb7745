"""EditScore/EditReward-Bench: pairs of edits with the better one first, in three dimensions and 13 kinds of edits (EditScore, arXiv
2509.23909).

Not to be confused with TIGER-Lab/EditReward-Bench (``tiger_editreward_bench``).

Hub: data set EditScore/EditReward-Bench, not gated, split train (the authors' code is Apache-2.0; see its card for the data). One row is
one comparison: key (two names), instruction, input_image, output_images (two images, the preferred one first), task_type, dimension
(prompt_following, consistency, overall). About 2,890 rows.

Published convention. Accuracy per dimension, equal scores wrong, averaged over the kinds of edits (macro). Published scorers were shown
the edit resized to the source; here a model is shown the edit as it is.

Sound. Averaged over the comparisons (micro), equal scores half.

Prompt following is our dimension instruction_following. A model without a dimension consistency has no figure for it: neither its
aggregate nor its visual quality is a measure of consistency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reward.benchmarks import ties
from reward.benchmarks.items import OVERALL, BenchmarkEdit, Comparison, Scores, margins
from reward.benchmarks.result import BenchmarkResult, Measured, assess, size_note
from reward.benchmarks.tables import parquet_files, parquet_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap

NAME = "editscore-editreward-bench"
HUB_ID = "EditScore/EditReward-Bench"
PUBLISHED_COMPARISONS = 2890
DIMENSIONS = {"overall": OVERALL, "prompt_following": "instruction_following", "consistency": "consistency"}
"""Names there and here, headline first."""


def load(path: str | Path) -> list[Comparison]:
    """Comparisons of a local copy, in the order of its files; the first edit is always the preferred one."""
    rows = parquet_rows(
        parquet_files(path, "**/*.parquet", HUB_ID),
        columns=("key", "instruction", "task_type", "dimension"),
        images=("input_image", "output_images"),
    )
    items = []
    for row in rows:
        dimension, outputs = row.text("dimension"), row["output_images"]
        if dimension not in DIMENSIONS:
            raise row.fault("dimension", f"{dimension!r} is none of {', '.join(DIMENSIONS)}")
        if not isinstance(outputs, list) or len(outputs) != 2:
            raise row.fault("output_images", "expected two images")
        first, second = (BenchmarkEdit(row["input_image"], row.text("instruction"), image) for image in outputs)
        items.append(
            Comparison(
                item_id=f"{row.file.name}[{row.number}]",
                first=first,
                second=second,
                label=1,
                source=row["input_image"].content,
                kind=row.text("task_type"),
                dimension=dimension,
            )
        )
    return items


def measure(items: Sequence[Comparison], scores: Scores, bootstrap: Bootstrap) -> Measured:
    """Accuracy per dimension that the model has."""
    published, sound, details = {}, {}, {}
    correct: dict[str, bool] = {}
    for name in _known(items, scores):
        inside = [item for item in items if item.dimension == name]
        margin, label = margins(inside, scores, DIMENSIONS[name]), np.ones(len(inside), dtype=int)
        kinds, kind = np.unique([item.kind for item in inside], return_inverse=True)
        source = [item.source for item in inside]
        wrong = ties.decisive(margin, label, "wrong")

        def macro(drawn: np.ndarray, kind: np.ndarray = kind, wrong: np.ndarray = wrong) -> float:
            counts = np.bincount(kind[drawn])
            return float((np.bincount(kind[drawn], weights=wrong[drawn])[counts > 0] / counts[counts > 0]).mean())

        published[f"{name}, mean over kinds of edits, equal scores wrong"] = bootstrap.of(macro, source)
        sound[f"{name}, over comparisons, equal scores half"] = bootstrap.mean(ties.decisive(margin, label, "half"), source)
        details |= {f"{name}, {task}": float(wrong[kind == number].mean()) for number, task in enumerate(kinds)}
        correct |= {item.item_id: bool(right) for item, right in zip(inside, wrong, strict=True)}
    return Measured(published, sound, details, correct, {item.item_id: item.source for item in items})


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    notes = size_note(len(items), PUBLISHED_COMPARISONS, "comparisons")
    per_dimension = Counter(item.dimension for item in items)
    absent = [name for name in per_dimension if name not in _known(items, scores)]
    notes += [f"no figure for {name}: the model has no dimension {DIMENSIONS[name]}" for name in absent]
    counts = {f"comparisons of {name}": per_dimension[name] for name in DIMENSIONS}
    return assess(NAME, items, scores, measure, bootstrap, counts=counts, notes=notes)


def _known(items: Sequence[Comparison], scores: Scores) -> list[str]:
    """Dimensions that both the items and the model have, headline first."""
    there = {item.dimension for item in items}
    has = {OVERALL} | {name for judged in scores.values() for name in judged.dimensions}
    return [name for name, ours in DIMENSIONS.items() if name in there and ours in has]
