"""Simulated raters of the built-in toy world. They rate the sampled candidates of a run and produce files as people do.

In: the rating task and the ground-truth quality that the toy editors wrote into the candidates' metadata. Out: one table per rater in the
canonical long format. One rater rates each group as a whole; a share of ``overlap`` of the groups gets further raters, chosen by a seeded
hash. A rater's clock starts at a fixed time and advances by the seconds of each rating.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stages.annotate.config import SimulatedRaters
from stages.annotate.packet.write import TEMPLATE, csv_table
from stages.annotate.ratings.rating_task import RatingTask
from stages.engine import storage
from stages.engine.ids import uniform
from stages.engine.rundir import StepFolder
from stages.world import raters

START = datetime(2025, 1, 6, 9, 0, tzinfo=UTC)

Levels = Mapping[str, Any]
"""Ground-truth quality of a candidate by dimension, and its flaw there under the dimension's name with `_flaw`."""


def write(target: Path, generate: StepFolder, task: RatingTask, *, config: SimulatedRaters, seed: int) -> list[Path]:
    """Write ``<rater>.csv`` for every rater with a group, replacing earlier files; returns the files."""
    levels = _ground_truth(generate, task)
    names = [rater for rater in raters.RATERS if any(rater in raters_of(group, config, seed) for group in task.sampled)]
    partial = storage.partial_folder(target)
    for rater in names:
        rows = list(_ratings(rater, task, levels, config, seed))
        (partial / f"{rater}.csv").write_bytes(csv_table(rows, TEMPLATE))
    storage.replace_folder(partial, target)
    return [target / f"{rater}.csv" for rater in names]


def raters_of(group: str, config: SimulatedRaters, seed: int) -> list[str]:
    """Raters of a group: one, or ``config.raters`` with probability ``config.overlap``."""
    count = len(raters.RATERS)
    first = int(uniform("rater", seed, group) * count)
    if uniform("overlap", seed, group) >= config.overlap:
        return [raters.RATERS[first]]
    second = 1 + int(uniform("second rater", seed, group) * (count - 1))
    others = [1 + (second - 1 + place) % (count - 1) for place in range(config.raters - 1)]
    return [raters.RATERS[(first + other) % count] for other in (0, *others)]


def _ratings(rater: str, task: RatingTask, levels: Mapping[str, Levels], config: SimulatedRaters, seed: int) -> Iterator[dict[str, Any]]:
    clock = START
    for group, candidates in task.sampled.items():
        if rater not in raters_of(group, config, seed):
            continue
        for candidate in candidates:
            for dimension in task.dimensions:
                truth = levels[candidate]
                noise = raters.NOISE_DEVIATION if config.noise == "even" else raters.deviation(truth[f"{dimension}_flaw"])
                seconds = raters.seconds(rater, candidate, dimension, seed)
                clock += timedelta(seconds=seconds)
                yield {
                    "group_id": group,
                    "candidate_id": candidate,
                    "dimension": dimension,
                    "annotator_id": rater,
                    "score": raters.rate(rater, candidate, dimension, truth[dimension], seed, noise=noise),
                    "rated_at": clock.isoformat(timespec="milliseconds"),
                    "round": "production",
                    "seconds": seconds,
                    "rubric_version": task.rubric_version,
                    "project": task.project,
                }


def _ground_truth(generate: StepFolder, task: RatingTask) -> dict[str, Levels]:
    metadata = generate.column("candidates", "candidate_id", "metadata")
    sampled = sorted(candidate for candidates in task.sampled.values() for candidate in candidates)
    levels = {candidate: json.loads(metadata[candidate]) for candidate in sampled}
    for candidate, truth in levels.items():
        if not all(dimension in truth for dimension in task.dimensions):
            raise ValueError(f"candidate {candidate} has no ground-truth quality: simulated raters rate only edits of the toy world")
    return levels
