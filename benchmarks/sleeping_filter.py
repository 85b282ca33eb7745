"""The command `pipeline`, whose filter step scores with a model that sleeps: the step as it is, without what a model costs.

    python benchmarks/sleeping_filter.py run filter --config FILE --run DIR --address ADDRESS

Inspection, dispatch, preparing tasks, selection and shards are those of the step; a score is drawn from the sample's id. Workers load no
model, so that many can be killed in a short time (``benchmarks/filter_kills.py --sleeping``). They import this module: the root of the
repository has to be on PYTHONPATH.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, cast

from reward.evaluation.baselines import change_from_source
from stages.datasets import readers as edits
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.ids import uniform
from stages.engine.units import UnitOutput, Work
from stages.filter import scoring as edit_scoring
from stages.scoring.preparation import Prepared, Ready, pieces_of, prepared
from stages.scoring.rows import score_row

IMAGE_AREA = 32 * 32
PREPARE_SECONDS, SCORE_SECONDS = 0.15, 0.15
"""Sleep per slice."""


class _Drawn:
    """What a row of scores reads of ``reward.Score``, drawn from the sample's id."""

    def __init__(self, sample_id: str) -> None:
        self.mean = {name: uniform("mean", name, sample_id) for name in ("instruction_following", "visual_quality")}
        self.sigma = dict.fromkeys(self.mean, 0.5)
        self.likert = None
        self.overall_mean, self.overall_sigma = sum(self.mean.values()) / len(self.mean), 0.5


def make_scoring(model: Path, revision: str, token_budget: int, prepare_workers: int, step: str) -> Work:
    """Replaces ``stages.filter.scoring.make_scoring``."""

    def work(piece: edits.Slice) -> UnitOutput:
        ready: list[Ready] = []
        quarantine: list[Quarantined] = []
        for part in prepared(pieces_of(piece, IMAGE_AREA), _prepare, workers=prepare_workers):
            for entry in part.entries:
                (quarantine if isinstance(entry, Quarantined) else ready).append(entry)  # ty: ignore[invalid-argument-type]
        time.sleep(SCORE_SECONDS)
        tables = {
            "edits": contracts.table("edits", [entry.reference for entry in ready]),
            "scores": contracts.table("scores", [_row(entry, revision) for entry in ready]),
        }
        return UnitOutput(tables, len(piece.rows), len(ready), quarantine)

    return work


def _prepare(piece: edits.Slice) -> Prepared:
    time.sleep(PREPARE_SECONDS)
    return Prepared([entry if isinstance(entry, Quarantined) else _ready(entry) for entry in edits.fetch(piece)], [], [])


def _ready(edit: edits.Edit) -> Ready | Quarantined:
    images = edits.opened(edit, whole=False)
    if isinstance(images, Quarantined):
        return images
    return Ready(edit.row_id, edit.position, edit.row(with_images=False), change_from_source(*images))


def _row(entry: Ready, revision: str) -> dict[str, Any]:
    known = entry.reference
    score = cast("Any", _Drawn(known["sample_id"]))
    return score_row(known["sample_id"], score, revision=revision, change=entry.change, task=known["task"], language=known["language"])


if __name__ == "__main__":
    from benchmarks import sleeping_filter  # not as __main__: workers find its functions by their module
    from pipeline.cli import main

    setattr(edit_scoring, "make_scoring", sleeping_filter.make_scoring)  # noqa: B010
    sys.exit(main())
