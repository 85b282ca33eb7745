"""What of a benchmark occurs among the sources of the run, and what that does to its figures.

All sources of the run count, train and validation: the validation half calibrates the model. What a pretrained backbone has seen is not
known here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stages.engine import steps
from stages.engine.rundir import RunDir

if TYPE_CHECKING:
    from reward.benchmarks.contamination import Effect, Kind, TrainingIndex, TrainingSource
    from reward.benchmarks.items import Item
    from reward.benchmarks.result import BenchmarkResult


def training_index(run: RunDir) -> TrainingIndex:
    """Hashes of the run's sources, read part by part."""
    from reward.benchmarks.contamination import TrainingIndex

    return TrainingIndex(_sources(run))


def leaks(items: Sequence[Item], training: TrainingIndex, evaluate: Callable[[Sequence[Item]], BenchmarkResult]) -> dict[str, Any]:
    """Matches, and the figures with and without the items that match by image, or by image or instruction; JSON-able."""
    from reward.benchmarks.contamination import IMAGE_KINDS, effect, find

    matches = find(items, training)
    named: dict[str, tuple[Kind, ...]] = {"image": IMAGE_KINDS, "image or instruction": (*IMAGE_KINDS, "instruction")}
    effects = {name: effect(items, matches, kinds, evaluate) for name, kinds in named.items()}
    return {
        "training_sources": len(training.names),
        "undecodable_training_sources": training.undecodable,
        "matches": [asdict(match) for match in matches],
        "effect": {name: _plain(found) for name, found in effects.items()},
        "summary": ", ".join(f"{found.items:,} by {name}" for name, found in effects.items()),
    }


def _sources(run: RunDir) -> Iterator[TrainingSource]:
    from reward.benchmarks.contamination import TrainingSource

    folder = run.step(steps.GENERATE)
    index = folder.index()
    for part in index.artifacts["sources"] if index is not None else ():  # a model from elsewhere: its training data are not here
        columns = ["source_id", "image", "instruction", "split"]
        for row in folder.read_table("sources", [part], columns).to_pylist():
            yield TrainingSource(row["source_id"], (row["image"] or {}).get("bytes"), row["instruction"], row["split"])


def _plain(found: Effect) -> dict[str, Any]:
    """Each figure of the model on all items, and without those that match."""
    from reward.benchmarks.result import plain

    rows = []
    for convention in ("published", "sound"):
        without = getattr(found.without.model, convention) if found.without else {}
        for name, figure in getattr(found.all.model, convention).items():
            other = without.get(name)
            rows.append(
                {"convention": convention, "figure": name, "all": plain(figure), "without": None if other is None else plain(other)}
            )
    return {"items": found.items, "rows": rows}
