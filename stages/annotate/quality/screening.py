"""Screening: the status of every annotator (good, needs attention, removed) with reasons.

In: ratings, the scale, the rules of the configuration. Out: a status with reasons per annotator, and the profiles behind it.

Annotators are removed one at a time, the lowest kappa first, and all others are assessed again after each removal; otherwise a random
clicker would lower the kappa of honest partners. Nobody is assessed on fewer than ``least_groups`` shared groups. A strict or lenient
annotator needs attention but is not removed: one person rates a whole group, so severity cancels inside every pair. Ratings of the rounds
exam and adjudication (whose raters have seen the other scores) are not evidence of agreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement.alpha import panels
from stages.annotate.config import QualityConfig
from stages.annotate.quality.outliers import outlying_raters
from stages.annotate.quality.profiles import Profile, profiles
from stages.annotate.ratings.gold import Gold, GoldAccuracy, gold_accuracy, gold_cells
from stages.annotate.ratings.rating_task import ADJUDICATION, EXAM

Status = Literal["good", "attention", "removed", "too few groups", "expert"]
AccuracyByKey = Mapping[tuple[str, str], GoldAccuracy]
"""Accuracy on gold by (annotator, dimension)."""


@dataclass(frozen=True)
class AnnotatorStatus:
    """Status of an annotator; ``reasons`` are sentences."""

    status: Status
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screening:
    """profiles: of a removed annotator, those at the removal. gold, exam: accuracy on gold outside and inside round exam."""

    statuses: dict[str, AnnotatorStatus]
    profiles: dict[str, list[Profile]]
    gold: AccuracyByKey = field(default_factory=dict)
    exam: AccuracyByKey = field(default_factory=dict)
    gold_cells: Gold = field(default_factory=dict)

    @property
    def removed(self) -> list[str]:
        """Annotators whose ratings are not accepted, in the order of their removal."""
        return [name for name, found in self.statuses.items() if found.status == "removed"]


def screen(ratings: pa.Table, levels: Sequence[float], config: QualityConfig, *, seed: int, gold: Gold | None = None) -> Screening:
    """Assess every annotator. gold: gold cells from a file; they replace those from the ratings of the experts.

    Raises ``ValueError`` for a rule that cannot work on these ratings, and for configured names without ratings.
    """
    names = sorted(set(ratings["annotator"].to_pylist()))
    for key, listed in (("experts", config.experts), ("exclude", config.exclude)):
        strangers = sorted(set(listed) - set(names))
        if strangers:
            raise ValueError(f"annotate.quality.{key} names {strangers[0]!r}, who rated nothing; annotators are {', '.join(names[:20])}")
    both = sorted(set(config.experts) & set(config.exclude))
    if both:
        raise ValueError(f"annotate.quality.experts and annotate.quality.exclude both name {both[0]!r}; keep one")
    gold = {**gold_cells(ratings, config.experts, config.gold_raters, levels), **(gold or {})}
    in_exam = pc.equal(ratings["round"], EXAM)
    exam = gold_accuracy(ratings.filter(in_exam), gold, config.experts, levels)
    hidden = gold_accuracy(ratings.filter(pc.invert(in_exam)), gold, config.experts, levels)
    evidence = ratings.filter(pc.invert(pc.is_in(ratings["round"], pa.array([EXAM, ADJUDICATION]))))
    outside = _outliers(evidence, config) | gold_failures(hidden, exam, config)
    outside |= {name: ("named in annotate.quality.exclude", *outside.get(name, ())) for name in config.exclude}
    statuses: dict[str, AnnotatorStatus] = {}
    found: dict[str, list[Profile]] = {}
    remaining = evidence
    while True:
        sorted_by_name = profiles(remaining, list(levels), window=config.window, least=config.least_groups, seed=seed)
        current = {name: list(of_name) for name, of_name in groupby(sorted_by_name, key=lambda profile: profile.annotator)}
        reasons = {name: (*outside.get(name, ()), *disagreement(current.get(name, []), config)) for name in names if name not in statuses}
        bad = [name for name, why in reasons.items() if why and name not in config.experts]
        if not bad:
            break
        worst = min(bad, key=lambda name: (_lowest_kappa(current.get(name, [])), name))
        statuses[worst] = AnnotatorStatus("removed", reasons[worst])
        found[worst] = current.get(worst, [])
        remaining = remaining.filter(pc.not_equal(remaining["annotator"], worst))
    for name in names:
        if name not in statuses:
            found[name] = current.get(name, [])
            statuses[name] = _status(name, found[name], config)
    return Screening(statuses, found, hidden, exam, gold)


def _status(name: str, of_name: Sequence[Profile], config: QualityConfig) -> AnnotatorStatus:
    if name in config.experts:
        return AnnotatorStatus("expert")
    if not any(profile.compared_groups >= config.least_groups for profile in of_name):
        most = max((profile.compared_groups for profile in of_name), default=0)
        return AnnotatorStatus("too few groups", (f"{most} shared groups, {config.least_groups} needed",))
    reasons = tuple(reason for profile in of_name for reason in attention(profile, config))
    return AnnotatorStatus("attention", reasons) if reasons else AnnotatorStatus("good")


def attention(profile: Profile, config: QualityConfig) -> list[str]:
    """Reasons why an annotator needs the lead's attention."""
    rules, reasons = config.attention, []
    if profile.compared_groups >= config.least_groups:
        if not profile.kappa.defined or profile.kappa.value < rules.kappa:
            reasons.append(f"{profile.dimension}: kappa with the others {profile.kappa}, wanted {rules.kappa:g}")
        if profile.severity.defined and abs(profile.severity.value) > rules.severity:
            word = "lenient" if profile.severity.value > 0 else "strict"
            reasons.append(f"{profile.dimension}: {word} by {abs(profile.severity.value):.2f}, at most {rules.severity:g} wanted")
    if profile.drift is not None and abs(profile.drift) > rules.drift:
        reasons.append(f"{profile.dimension}: severity drifted by {profile.drift:+.2f}, at most {rules.drift:g} wanted")
    if profile.pace is not None and profile.pace < rules.pace:
        reasons.append(f"{profile.dimension}: takes {profile.pace:.2f} of the usual time, at least {rules.pace:g} wanted")
    return reasons


def disagreement(of_name: Sequence[Profile], config: QualityConfig) -> tuple[str, ...]:
    """Reasons to remove an annotator, from the profiles."""
    return tuple(
        f"{profile.dimension}: kappa with the others {profile.kappa}, its upper limit is below {config.remove.kappa:g}"
        for profile in of_name
        if profile.compared_groups >= config.least_groups and profile.kappa.high is not None and profile.kappa.high < config.remove.kappa
    )


def gold_failures(hidden: AccuracyByKey, exam: AccuracyByKey, config: QualityConfig) -> dict[str, tuple[str, ...]]:
    """Reasons to remove an annotator, from the accuracy on gold, by annotator."""
    reasons: dict[str, tuple[str, ...]] = {}
    for (name, dimension), result in hidden.items():
        if result.groups >= config.exam.groups and result.within_one < config.remove.gold_within_one:
            least = config.remove.gold_within_one
            why = f"{dimension}: {result.within_one:.2f} of the scores on gold at most one level off, below {least:g}"
            reasons[name] = (*reasons.get(name, ()), why)
    for (name, dimension), result in exam.items():
        if config.remove.failed_exam and result.groups >= config.exam.groups and not result.passes(config.exam):
            reasons[name] = (*reasons.get(name, ()), f"{dimension}: failed the exam ({describe(result)})")
    return reasons


def describe(result: GoldAccuracy) -> str:
    """Accuracy on gold in words."""
    kappa = "undefined" if result.kappa is None else f"{result.kappa:.2f}"
    return f"kappa {kappa}, exact {result.exact:.2f}, within one level {result.within_one:.2f}, severity {result.severity:+.2f}"


def _outliers(evidence: pa.Table, config: QualityConfig) -> dict[str, tuple[str, ...]]:
    rule = config.remove.outliers
    if rule == "off":
        return {}
    names = sorted(set(evidence["annotator"].to_pylist()))
    reasons: dict[str, tuple[str, ...]] = {}
    for dimension, panel in panels(evidence).items():
        for code, share in outlying_raters(panel, rule, config.remove.outlier_share).items():
            why = f"{dimension}: {share:.1%} of the scores are outliers by rule {rule}, at most {config.remove.outlier_share:.0%} wanted"
            reasons[names[code]] = (*reasons.get(names[code], ()), why)
    return reasons


def _lowest_kappa(of_name: Sequence[Profile]) -> float:
    return min((profile.kappa.value for profile in of_name if profile.kappa.defined), default=np.inf)
