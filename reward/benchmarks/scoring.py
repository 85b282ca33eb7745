"""Score the edits of a benchmark in one process. The pipeline does so on Ray, unit by unit (``stages/evaluate_reward/benchmarks.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reward.benchmarks.items import Edit, Item, Judged, distinct
from reward.benchmarks.pictures import read
from reward.evaluation.baselines import change_from_source
from reward.inputs.decoding import decode
from reward.inputs.sample import EditSample, SampleError

if TYPE_CHECKING:
    from reward.inference.scorer import Score
    from reward.model.model import RewardModel

BATCH = 64
"""Edits whose images are in memory at the same time."""


def score_items(*, model: RewardModel, items: Sequence[Item]) -> tuple[dict[str, Judged], dict[str, SampleError]]:
    """Scores by edit_id, every distinct edit scored once; and why the others have none."""
    from reward.inference.scorer import score

    judged: dict[str, Judged] = {}
    failed: dict[str, SampleError] = {}
    edits = distinct(items)
    for first in range(0, len(edits), BATCH):
        part = edits[first : first + BATCH]
        shown = samples(part)
        for edit, sample, result in zip(part, shown, score(model=model, samples=shown), strict=True):
            if isinstance(result, SampleError):
                failed[edit.edit_id] = result
            else:
                judged[edit.edit_id] = _judged(result, sample)
    return judged, failed


def samples(edits: Sequence[Edit]) -> list[EditSample]:
    """Edits with their images."""
    images = read([picture for edit in edits for picture in (edit.source, edit.edited)])
    return [EditSample(images[edit.source.content], edit.instruction, images[edit.edited.content]) for edit in edits]


def _judged(result: Score, sample: EditSample) -> Judged:
    change = change_from_source(decode(sample.source, what="source image"), decode(sample.edited, what="edited image"))
    return Judged(result.overall_mean, result.mean, change)
