"""Simulated raters of the embedded world: they rate the sampled candidates of a run and deliver files just as people do.

In: the manifest and the true levels that the world's editors left in the candidates' metadata. Out: one table per rater in the canonical
long format. Every group is rated as a whole by one rater, and an ``overlap`` share of the groups by further ones, chosen by a seeded
hash. The clock of a rater starts at a fixed morning and advances by the seconds that each rating took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stages.annotate.config import SimulatedRaters
from stages.annotate.packet import write as packet
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.manifest import Manifest
from stages.engine import storage
from stages.engine.ids import uniform
from stages.engine.rundir import StepFolder
from stages.world import raters

START = datetime(2025, 1, 6, 9, 0, tzinfo=UTC)

Levels = Mapping[str, Any]
"""True level of a candidate by dimension."""


def write(target: Path, generate: StepFolder, manifest: Manifest, *, config: SimulatedRaters, seed: int) -> list[Path]:
    """Write ``<rater>.csv`` for every rater who has a group, replacing what was there; returns the files."""
    levels = _true_levels(generate, manifest)
    names = [rater for rater in raters.RATERS if any(rater in raters_of(group, config, seed) for group in manifest.sampled)]
    partial = storage.partial_folder(target)
    for rater in names:
        rows = list(_ratings(rater, manifest, levels, config, seed))
        (partial / f"{rater}.csv").write_bytes(csv_table(rows, packet.TEMPLATE))
    storage.replace_folder(partial, target)
    return [target / f"{rater}.csv" for rater in names]


def raters_of(group: str, config: SimulatedRaters, seed: int) -> list[str]:
    """The rater of a group, and with probability ``config.overlap`` as many others as make ``config.raters``."""
    count = len(raters.RATERS)
    first = int(uniform("rater", seed, group) * count)
    if uniform("overlap", seed, group) >= config.overlap:
        return [raters.RATERS[first]]
    second = 1 + int(uniform("second rater", seed, group) * (count - 1))
    others = [1 + (second - 1 + place) % (count - 1) for place in range(config.raters - 1)]
    return [raters.RATERS[(first + other) % count] for other in (0, *others)]


def _ratings(rater: str, manifest: Manifest, levels: Mapping[str, Levels], config: SimulatedRaters, seed: int) -> Iterator[dict[str, Any]]:
    clock = START
    for group, candidates in manifest.sampled.items():
        if rater not in raters_of(group, config, seed):
            continue
        for candidate in candidates:
            for dimension in manifest.dimensions:
                seconds = raters.seconds(rater, candidate, dimension, seed)
                clock += timedelta(seconds=seconds)
                yield {
                    "group_id": group,
                    "candidate_id": candidate,
                    "dimension": dimension,
                    "annotator_id": rater,
                    "score": raters.rate(rater, candidate, dimension, levels[candidate][dimension], seed),
                    "rated_at": clock.isoformat(timespec="milliseconds"),
                    "round": "production",
                    "seconds": seconds,
                    "rubric_version": manifest.rubric_version,
                    "project": manifest.project,
                }


def _true_levels(generate: StepFolder, manifest: Manifest) -> dict[str, Levels]:
    columns = generate.read("candidates", ["candidate_id", "metadata"]).columns
    metadata = dict(zip(*(column.to_pylist() for column in columns), strict=True))
    levels = {candidate: json.loads(metadata[candidate]) for candidate in sorted(manifest.chosen)}
    for candidate, truth in levels.items():
        if not all(dimension in truth for dimension in manifest.dimensions):
            raise ValueError(f"candidate {candidate} has no true levels: simulated raters rate only what the world's editors made")
    return levels
