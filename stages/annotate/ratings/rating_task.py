"""The rating task: groups and candidates to rate, dimensions, scale; and the rounds in which they are rated.

The task comes from the generate step (a group is a source with its sampled candidates) or from an imported data set
(:mod:`stages.annotate.ratings.imported_items`). Ingest checks every rating against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from stages.engine import steps
from stages.engine.ids import settings_hash, uniform

if TYPE_CHECKING:
    from stages.context import Context

ROUNDS = ("pilot", "exam", "calibration", "production", "reannotation", "adjudication", "benchmark", "ranking")
"""Phases of a rating project (docs/annotation-quality.md). Every rating belongs to one."""
PILOT, EXAM, CALIBRATION, PRODUCTION, REANNOTATION, ADJUDICATION, BENCHMARK, RANKING = ROUNDS
"""Rounds with rules of their own. The score of a ranking is a rank: 1 is the best, the number of candidates the worst."""


@dataclass(frozen=True)
class Scale:
    """Scores from ``minimum`` to ``maximum`` in steps of ``step``."""

    minimum: float
    maximum: float
    step: float = 1.0

    @property
    def levels(self) -> list[float]:
        """All scores, lowest first."""
        return [round(self.minimum + i * self.step, 9) for i in range(round((self.maximum - self.minimum) / self.step) + 1)]

    def __str__(self) -> str:
        return ", ".join(f"{level:g}" for level in self.levels)


def level_width(levels: Sequence[float]) -> float:
    """Width of one level: the step of the scale, or a quarter of the range of a finer scale."""
    return max(levels[1] - levels[0], (levels[-1] - levels[0]) / 4)


@dataclass(frozen=True)
class RatingTask:
    """group_of: group of every candidate; sampled: candidates to rate by group, in the order in which they are shown."""

    inputs: Mapping[str, str]
    dimensions: tuple[str, ...]
    scale: Scale
    rubric_version: str
    group_of: Mapping[str, str] = field(repr=False)
    sampled: Mapping[str, tuple[str, ...]] = field(repr=False)

    @cached_property
    def project(self) -> str:
        """Id of the task. Ratings that name another project are refused."""
        return settings_hash(sorted(self.sampled.items()), list(self.dimensions), self.scale.levels)

    @property
    def settings(self) -> dict[str, object]:
        """Settings that all ratings of one ledger share."""
        return {"dimensions": list(self.dimensions), "scale": self.scale.levels}


def generated_task(context: Context) -> RatingTask:
    """Task of the run's generate step. The seeded order of groups and candidates reveals nothing about editors to a rater.

    Raises ``ValueError`` when the step is not done.
    """
    generate, config, seed = context.run.step(steps.GENERATE), context.flow.annotate, context.flow.seed
    sampled: defaultdict[str, list[str]] = defaultdict(list)
    for group, candidate in zip(*(column.to_pylist() for column in generate.read("drawn").columns), strict=True):
        sampled[group].append(candidate)
    return RatingTask(
        inputs={steps.GENERATE: generate.require().fingerprint},
        dimensions=config.dimensions,
        scale=Scale(config.scale_min, config.scale_max, config.scale_step),
        rubric_version=config.rubric_version,
        group_of=generate.column("candidates", "candidate_id", "source_id"),
        sampled={
            group: tuple(sorted(sampled[group], key=lambda candidate: (uniform("order shown", seed, candidate), candidate)))
            for group in sorted(sampled, key=lambda group: (uniform("order of groups", seed, group), group))
        },
    )
