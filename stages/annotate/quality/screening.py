"""Screening: which annotators' ratings are accepted, who needs the lead's attention, and why.

In: ratings, the scale, the rules of the configuration. Out: a verdict with reasons per annotator, beside the profiles that it rests on.

Removal goes one annotator at a time, the lowest kappa first, and everybody else is judged anew after each: one random clicker must not
take the honest partners along. Nobody is judged on fewer groups than ``least_groups`` rated by others too. A strict or lenient
annotator needs attention but stays: a group is rated whole by one person, so severity cancels inside every pair. Ratings of the rounds
exam and adjudication (given knowing the others' scores) are no evidence of agreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement.alpha import OVERALL, panels
from stages.annotate.quality.config import QualityConfig
from stages.annotate.quality.outliers import outlying_raters
from stages.annotate.quality.profiles import Profile, profiles
from stages.annotate.ratings.gold import Gold, OnGold, gold_cells, on_gold
from stages.annotate.ratings.rounds import ADJUDICATION, EXAM

Status = Literal["good", "attention", "removed", "too few groups", "expert"]
OnGoldByKey = Mapping[tuple[str, str], OnGold]


@dataclass(frozen=True)
class Verdict:
    """What becomes of an annotator; ``reasons`` are sentences."""

    status: Status
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screening:
    """profiles: of a removed annotator as of the removal. gold, exam: results on gold outside and inside round exam."""

    verdicts: dict[str, Verdict]
    profiles: dict[str, list[Profile]]
    gold: OnGoldByKey = field(default_factory=dict)
    exam: OnGoldByKey = field(default_factory=dict)
    gold_cells: Gold = field(default_factory=dict)

    @property
    def removed(self) -> list[str]:
        """Annotators whose ratings are not accepted, in the order of their removal."""
        return [name for name, verdict in self.verdicts.items() if verdict.status == "removed"]


def screen(ratings: pa.Table, levels: Sequence[float], config: QualityConfig, *, seed: int, gold: Gold | None = None) -> Screening:
    """Judge everybody. gold: cells known otherwise, beside those of the experts in the ratings.

    Raises ``ValueError`` for a rule that cannot work on these ratings, and for people who are named and rated nothing.
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
    exam = on_gold(ratings.filter(in_exam), gold, config.experts, levels)
    hidden = on_gold(ratings.filter(pc.invert(in_exam)), gold, config.experts, levels)
    evidence = ratings.filter(pc.invert(pc.is_in(ratings["round"], pa.array([EXAM, ADJUDICATION]))))
    outside = _outliers(evidence, config) | gold_failures(hidden, exam, config)
    outside |= {name: ("named in annotate.quality.exclude", *outside.get(name, ())) for name in config.exclude}
    verdicts: dict[str, Verdict] = {}
    found: dict[str, list[Profile]] = {}
    remaining = evidence
    while True:
        current = _by_name(profiles(remaining, list(levels), window=config.window, least=config.least_groups, seed=seed))
        reasons = {name: (*outside.get(name, ()), *disagreement(current.get(name, []), config)) for name in names if name not in verdicts}
        bad = [name for name, why in reasons.items() if why and name not in config.experts]
        if not bad:
            break
        worst = min(bad, key=lambda name: (_lowest_kappa(current.get(name, [])), name))
        verdicts[worst] = Verdict("removed", reasons[worst])
        found[worst] = current.get(worst, [])
        remaining = remaining.filter(pc.not_equal(remaining["annotator"], worst))
    for name in names:
        if name not in verdicts:
            found[name] = current.get(name, [])
            verdicts[name] = _verdict(name, found[name], config)
    return Screening(verdicts, found, hidden, exam, gold)


def _verdict(name: str, of_name: Sequence[Profile], config: QualityConfig) -> Verdict:
    if name in config.experts:
        return Verdict("expert")
    if not any(profile.compared_groups >= config.least_groups for profile in of_name):
        most = max((profile.compared_groups for profile in of_name), default=0)
        return Verdict("too few groups", (f"{most} groups rated by others too; {config.least_groups} are needed to judge",))
    reasons = tuple(reason for profile in of_name for reason in attention(profile, config))
    return Verdict("attention", reasons) if reasons else Verdict("good")


def attention(profile: Profile, config: QualityConfig) -> list[str]:
    """Why the lead should look at an annotator."""
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
    """Why the ratings of an annotator are not accepted, by the profiles."""
    return tuple(
        f"{profile.dimension}: kappa with the others {profile.kappa}, its upper limit is below {config.remove.kappa:g}"
        for profile in of_name
        if profile.compared_groups >= config.least_groups and profile.kappa.high is not None and profile.kappa.high < config.remove.kappa
    )


def gold_failures(hidden: OnGoldByKey, exam: OnGoldByKey, config: QualityConfig) -> dict[str, tuple[str, ...]]:
    """By annotator, why ratings are not accepted, by what was given on gold."""
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


def describe(result: OnGold) -> str:
    """Results on gold in words."""
    kappa = "undefined" if result.kappa is None else f"{result.kappa:.2f}"
    return f"kappa {kappa}, exact {result.exact:.2f}, within one level {result.within_one:.2f}, severity {result.severity:+.2f}"


def _outliers(evidence: pa.Table, config: QualityConfig) -> dict[str, tuple[str, ...]]:
    rule = config.remove.outliers
    if rule == "off":
        return {}
    names = sorted(set(evidence["annotator"].to_pylist()))
    reasons: dict[str, tuple[str, ...]] = {}
    for dimension, panel in panels(evidence).items():
        if dimension == OVERALL:
            continue
        for code, share in outlying_raters(panel, rule, config.remove.outlier_share).items():
            why = f"{dimension}: {share:.1%} of the scores are outliers by rule {rule}, at most {config.remove.outlier_share:.0%} wanted"
            reasons[names[code]] = (*reasons.get(names[code], ()), why)
    return reasons


def _by_name(found: Sequence[Profile]) -> dict[str, list[Profile]]:
    by_name: dict[str, list[Profile]] = {}
    for profile in found:
        by_name.setdefault(profile.annotator, []).append(profile)
    return by_name


def _lowest_kappa(of_name: Sequence[Profile]) -> float:
    return min((profile.kappa.value for profile in of_name if profile.kappa.defined), default=np.inf)
