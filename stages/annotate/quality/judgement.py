"""The judgement of ratings: who is removed, agreement of all and of the accepted ratings, the targets.

In: ratings without rankings, the rules of ``annotate.quality``. Out: a :class:`Judgement`. Quality control and the lead's page both show
what this one function computes, so they agree on the same ratings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.config import QualityConfig
from stages.annotate.quality import figures
from stages.annotate.quality.screening import Screening, screen
from stages.annotate.ratings.gold import Gold
from stages.annotate.ratings.rating_task import EXAM

SHOWN = ("alpha_ordinal", "ac2_ordinal", "within_one_level", "direction")
"""The four statistics that pages show first; the table has all."""


@dataclass(frozen=True)
class Judgement:
    """rounds, rounds_of_all: statistics by round and dimension of the accepted ratings, and of all but exams. targets: with both values."""

    screening: Screening
    rounds: dict[str, dict[str, Any]]
    rounds_of_all: dict[str, dict[str, Any]]
    targets: list[dict[str, Any]]

    @property
    def met(self) -> bool:
        """Whether the accepted ratings meet the targets."""
        return figures.met(self.targets)


def judge(scores: pa.Table, levels: Sequence[float], config: QualityConfig, *, seed: int, gold: Gold) -> Judgement:
    """Judge ratings. gold: gold cells from a file.

    Raises ``ValueError`` for a rule that cannot work on these ratings, and for configured names without ratings.
    """
    found = screen(scores, levels, config, seed=seed, gold=gold)
    counted = scores.filter(pc.not_equal(scores["round"], EXAM))
    accepted = scores.filter(is_accepted(scores, found))
    of_all = figures.by_round(counted, levels, seed=seed)
    rounds = of_all if accepted.num_rows == counted.num_rows else figures.by_round(accepted, levels, seed=seed)
    return Judgement(found, rounds, of_all, figures.checked_targets(rounds, of_all, config.targets))


def is_accepted(ratings: pa.Table, found: Screening) -> pa.Array:
    """Whether a rating is accepted [ratings]: not one of a removed annotator and not one of an exam."""
    removed = pc.is_in(ratings["annotator"], pa.array(found.removed, pa.string()))
    return pc.invert(pc.or_(removed, pc.equal(ratings["round"], EXAM)))


def annotators(found: Screening) -> list[dict[str, Any]]:
    """One entry per annotator and dimension with the status; one without a profile (exam only) has an entry without statistics."""
    order = {"removed": 0, "attention": 1, "too few groups": 2, "good": 3, "expert": 4}
    rows = []
    for name in sorted(found.statuses, key=lambda name: (order[found.statuses[name].status], name)):
        status = found.statuses[name]
        entries: list[dict[str, Any]] = [profile.to_json() for profile in found.profiles[name]] or [{"annotator": name, "dimension": ""}]
        for entry in entries:
            key = (name, entry["dimension"])
            gold, exam = found.gold.get(key), found.exam.get(key)
            rows.append(
                {"annotator": name, "status": status.status}
                | entry
                | {"gold": vars(gold) if gold else None, "exam": vars(exam) if exam else None, "reasons": list(status.reasons)}
            )
    return rows
