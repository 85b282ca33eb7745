"""The manifest: what may be rated, on which scale. Nothing is ingested without one.

It comes from the generate step (groups are sources, their sampled candidates are to be rated), or with the ImagenHub files, which bring
their own items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stages.annotate.config import AnnotateConfig
from stages.engine.contracts import DIMENSIONS
from stages.engine.ids import settings_hash, uniform
from stages.engine.rundir import StepFolder


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
    """What one level is: the step of the scale; of a fine scale a quarter of its range, as if it had five levels."""
    return max(levels[1] - levels[0], (levels[-1] - levels[0]) / 4)


@dataclass(frozen=True)
class Manifest:
    """group_of: group of every candidate; sampled: the candidates of each group that are to be rated, in the order they are shown in."""

    inputs: Mapping[str, str]
    dimensions: tuple[str, ...]
    scale: Scale
    rubric_version: str
    group_of: Mapping[str, str] = field(repr=False)
    sampled: Mapping[str, tuple[str, ...]] = field(repr=False)

    @cached_property
    def project(self) -> str:
        """Name of the work: ratings exported for another project are refused."""
        return settings_hash(sorted(self.sampled.items()), list(self.dimensions), self.scale.levels)

    @cached_property
    def chosen(self) -> frozenset[str]:
        """Candidates that are to be rated."""
        return frozenset(candidate for candidates in self.sampled.values() for candidate in candidates)

    @property
    def settings(self) -> dict[str, object]:
        """What a ledger cannot change between two deliveries."""
        return {"dimensions": list(self.dimensions), "scale": self.scale.levels}


def from_generate(generate: StepFolder, config: AnnotateConfig, *, seed: int) -> Manifest:
    """Manifest of a done generate step. Groups and candidates are in a seeded order, which tells a rater nothing about editors."""
    sampled: defaultdict[str, list[str]] = defaultdict(list)
    group_of = {}
    table = generate.read("candidates", ["candidate_id", "source_id", "annotate"])
    for candidate, group, annotate in zip(*(column.to_pylist() for column in table.columns), strict=True):
        group_of[candidate] = group
        if annotate:
            sampled[group].append(candidate)
    return Manifest(
        inputs={"generate": generate.require().fingerprint},
        dimensions=DIMENSIONS,
        scale=Scale(config.scale_min, config.scale_max, config.scale_step),
        rubric_version=config.rubric_version,
        group_of=group_of,
        sampled={
            group: tuple(sorted(sampled[group], key=lambda candidate: (uniform("order shown", seed, candidate), candidate)))
            for group in sorted(sampled, key=lambda group: (uniform("order of groups", seed, group), group))
        },
    )
