"""The result of a benchmark: published convention and sound figures side by side, for the model and for trivial baselines.

Every benchmark module has one function from items and scores to ``Measured``. The baselines go through the same function, so every rule
applies to them as to the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reward.benchmarks.items import BenchmarkEdit, EditScore, Item, Scores, distinct
from reward.evaluation.bootstrap import Bootstrap
from reward.evaluation.estimate import Estimate, number

MODEL = "model"


@dataclass(frozen=True)
class Measured:
    """What one scorer reaches. The first figure of each convention is the benchmark's headline.

    details: numbers behind the figures, such as thresholds. correct: by item or group, whether it is right by the rule of the sound
    headline; what two models are compared on.
    """

    published: dict[str, Estimate]
    sound: dict[str, Estimate]
    details: dict[str, float] = field(default_factory=dict)
    correct: dict[str, bool] = field(default_factory=dict)
    source_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchmarkResult:
    """scorers: the model first, then the baselines. chance: what guessing reaches, exactly. counts: items, edits, failures, faults of the
    data.
    """

    benchmark: str
    scorers: dict[str, Measured]
    chance: dict[str, float]
    counts: dict[str, int]
    notes: tuple[str, ...]

    @property
    def model(self) -> Measured:
        """The figures of the model."""
        return self.scorers[MODEL]

    def table(self) -> str:
        """The figures as text: one line per figure, one column per scorer."""
        form = "{:.4f}".format
        header = ["convention", "figure", "n", *self.scorers]
        lines = [header]
        for convention in ("published", "sound"):
            for name, figure in getattr(self.model, convention).items():
                others = [getattr(measured, convention)[name] for measured in self.scorers.values()]
                lines.append([convention, name, str(figure.n), figure.words(form), *(form(other.value) for other in others[1:])])
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        chance = ", ".join(f"{name} {value:.4f}" for name, value in self.chance.items())
        text = [f"{self.benchmark}: {counts}"]
        text += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
        text += [f"chance: {chance}"] if chance else []
        return "\n".join([*text, *(f"- {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded; None for what is not defined."""
        rows = [
            {"convention": convention, "figure": name}
            | {scorer: getattr(measured, convention)[name].to_json() for scorer, measured in self.scorers.items()}
            for convention in ("published", "sound")
            for name in getattr(self.model, convention)
        ]
        details = {scorer: {name: number(value) for name, value in measured.details.items()} for scorer, measured in self.scorers.items()}
        chance = {name: number(value) for name, value in self.chance.items()}
        return {"rows": rows, "details": details, "chance": chance, "counts": self.counts, "notes": list(self.notes)}


def assess(
    benchmark: str,
    items: Sequence[Item],
    scores: Scores,
    measure: Callable[[Sequence[Any], Scores, Bootstrap], Measured],
    bootstrap: Bootstrap,
    *,
    chance: dict[str, float] | None = None,
    counts: dict[str, int] | None = None,
    notes: Iterable[str] = (),
) -> BenchmarkResult:
    """Measure the model and the trivial baselines. Raises ``ValueError`` where there is no item or no edit has a score."""
    if not items:
        raise ValueError(f"{benchmark}: there is no item to evaluate")
    edits = distinct(items)
    scored = {edit.edit_id: scores[edit.edit_id] for edit in edits if edit.edit_id in scores}
    if not scored:
        raise ValueError(f"{benchmark}: none of its {len(edits):,} edits has a score")
    failed_items = sum(any(edit.edit_id not in scored for edit in item.edits) for item in items)
    basic = {"items": len(items), "edits": len(edits), "edits without score": len(edits) - len(scored), "items without score": failed_items}
    scorers = {MODEL: scored} | _baselines(edits, scored, bootstrap.seed)
    measured = {name: measure(items, values, bootstrap) for name, values in scorers.items()}
    return BenchmarkResult(benchmark, measured, chance or {}, basic | (counts or {}), tuple(notes))


def size_note(found: int, published: int, what: str) -> list[str]:
    """A remark where a copy has another size than the one that published figures rest on."""
    if found == published:
        return []
    return [f"{found:,} {what}, while published figures rest on {published:,}: another version, or a part of it"]


def _baselines(edits: Sequence[BenchmarkEdit], scored: Scores, seed: int) -> dict[str, Scores]:
    """Scores that ignore the instruction, for every edit; closeness only where it was measured."""
    dimensions = tuple(next(iter(scored.values())).dimensions)
    found: dict[str, Scores] = {
        "random": {edit.edit_id: _same(_uniform(seed, edit.edit_id), dimensions) for edit in edits},
        "constant": {edit.edit_id: _same(0.0, dimensions) for edit in edits},
        "closest to the source": {name: _same(-judged.change, dimensions) for name, judged in scored.items() if judged.change is not None},
    }
    return {name: values for name, values in found.items() if values}


def _same(value: float, dimensions: Sequence[str]) -> EditScore:
    return EditScore(value, dict.fromkeys(dimensions, value))


def _uniform(seed: int, name: str) -> float:
    """In [0, 1), from the name alone, so that neither order nor number of edits matters."""
    return int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:13], 16) / 16**13
