"""Annotator profiles: each annotator compared with the others who rated the same candidates, by dimension.

In: ratings. Out per annotator and dimension: severity (mean difference from the others in levels; positive is lenient), kappa with the
others and the share at most one level apart, spread (standard deviation of the scores, and its ratio to the others' on the same
candidates), drift (severity in the newest window of groups minus that in the first), the share of groups in which all candidates got the
same score, and the median time that a group took. Intervals resample the annotator's groups.

Only candidates that another person rated in the same round are compared. Kappa is Cohen's with quadratic weights, the annotator against the
others, so an annotator who always gives one score has kappa 0. A pair of ratings counts once for each other rater.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.alpha import Panel, panels, weighted_kappa
from stages.annotate.agreement.bootstrap import DIGITS, estimate, ratio, resampled_sums
from stages.annotate.agreement.new_raters import pairs_within_items
from stages.annotate.ratings.rating_task import level_width

ALONE = "nobody else rated the same"


@dataclass(frozen=True)
class Profile:
    """One annotator in one dimension. groups, compared_groups: rated groups, and those of them that others rated too.

    spread: standard deviation of the scores; spread_ratio: of those compared, divided by the others' on the same; None where undefined.
    seconds: median time for a group in this dimension; pace: seconds over the median of all annotators.
    """

    annotator: str
    dimension: str
    ratings: int
    groups: int
    compared_groups: int
    mean: float
    spread: float
    spread_ratio: float | None
    severity: Estimate
    kappa: Estimate
    within_one: Estimate
    drift: float | None
    equal_groups: float
    seconds: float | None
    pace: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: value.to_json() if isinstance(value, Estimate) else value for name, value in vars(self).items()}


def profiles(ratings: pa.Table, levels: list[float], *, window: int, least: int, seed: int) -> list[Profile]:
    """Profiles of everybody in every dimension, sorted by annotator and dimension.

    window: groups at each end of the annotator's work that drift compares; with fewer groups a smaller window, but at least ``least``.
    """
    names = sorted(set(ratings["annotator"].to_pylist()))
    dimension = ratings["dimension"].to_numpy(zero_copy_only=False)
    time, seconds = _times(ratings), ratings["seconds"].to_numpy()
    found = []
    for name, panel in panels(ratings).items():
        rows = dimension == name
        own, other = pairs_within_items(panel)
        level = np.searchsorted(levels, panel.value)
        for code in np.unique(panel.rater):
            mine = panel.rater == code
            pairs = panel.rater[own] == code
            compared = _Compared(panel.group[own[pairs]], level[own[pairs]], level[other[pairs]], time[rows][own[pairs]], np.array(levels))
            found.append(_profile(names[code], name, panel, mine, compared, seconds[rows], window, least, seed))
    return _with_pace(sorted(found, key=lambda profile: (profile.annotator, profile.dimension)))


@dataclass(frozen=True)
class _Compared:
    """Pairs of an annotator's ratings with others'. group, own and other (level indices), time: [pairs]; scale: scores [levels]."""

    group: np.ndarray
    own: np.ndarray
    other: np.ndarray
    time: np.ndarray
    scale: np.ndarray

    def tables(self) -> np.ndarray:
        """Counts of own level by other level per group, groups in the order of rating: [groups, levels, levels]."""
        groups, group = np.unique(self.group, return_inverse=True)
        begun = np.full(len(groups), np.inf)
        np.minimum.at(begun, group, self.time)
        tables = np.zeros((len(groups), len(self.scale), len(self.scale)))
        np.add.at(tables, (group, self.own, self.other), 1)
        return tables[np.lexsort((groups, begun))]


def _profile(
    annotator: str,
    dimension: str,
    panel: Panel,
    mine: np.ndarray,
    compared: _Compared,
    seconds: np.ndarray,
    window: int,
    least: int,
    seed: int,
) -> Profile:
    tables = compared.tables()
    sums = resampled_sums(tables, seed=seed)
    difference = np.subtract.outer(compared.scale, compared.scale) / level_width(compared.scale.tolist())
    steps = np.abs(np.subtract.outer(np.arange(len(compared.scale)), np.arange(len(compared.scale))))

    def severity(counts: np.ndarray) -> np.ndarray:
        return ratio((counts * difference).sum((1, 2)), counts.sum((1, 2)))

    def within_one(counts: np.ndarray) -> np.ndarray:
        return ratio((counts * (np.abs(difference) < 1 + 1e-9)).sum((1, 2)), counts.sum((1, 2)))

    value, n = panel.value[mine], len(tables)
    spreads = [float(compared.scale[levels].std()) if len(levels) else 0.0 for levels in (compared.own, compared.other)]
    undefined = "no variation" if n else ALONE
    width = min(window, n // 2)
    drift = None
    if width >= least:
        drift = round(float(severity(tables[-width:].sum(0)[None])[0] - severity(tables[:width].sum(0)[None])[0]), DIGITS)
    _, slot = np.unique(panel.group[mine] * (1 + panel.round.max()) + panel.round[mine], return_inverse=True)
    return Profile(
        annotator=annotator,
        dimension=dimension,
        ratings=int(mine.sum()),
        groups=len(np.unique(panel.group[mine])),
        compared_groups=n,
        mean=round(float(value.mean()), DIGITS),
        spread=round(float(value.std()), DIGITS),
        spread_ratio=round(spreads[0] / spreads[1], DIGITS) if spreads[1] else None,
        severity=estimate(tables, sums, severity, n=n, undefined=ALONE),
        kappa=estimate(tables, sums, lambda t: weighted_kappa(t, steps**2), n=n, undefined=undefined),
        within_one=estimate(tables, sums, within_one, n=n, undefined=ALONE),
        drift=drift,
        equal_groups=_equal_groups(value, slot),
        seconds=_median_of_groups(seconds[mine], slot),
    )


def _equal_groups(value: np.ndarray, slot: np.ndarray) -> float:
    """Share of the slots with at least two ratings in which all scores are equal."""
    count = np.bincount(slot)
    high, low = np.full(len(count), -np.inf), np.full(len(count), np.inf)
    np.maximum.at(high, slot, value)
    np.minimum.at(low, slot, value)
    several = count > 1
    return round(float((high == low)[several].mean()), DIGITS) if several.any() else 0.0


def _median_of_groups(seconds: np.ndarray, slot: np.ndarray) -> float | None:
    """Median of the total seconds per slot; slots with a rating of unknown time are left out."""
    total = np.bincount(slot, seconds)
    known = total[~np.isnan(total)]
    return round(float(np.median(known)), DIGITS) if len(known) else None


def _with_pace(found: list[Profile]) -> list[Profile]:
    medians = {}
    for name in {profile.dimension for profile in found}:
        known = [profile.seconds for profile in found if profile.dimension == name and profile.seconds is not None]
        medians[name] = float(np.median(known)) if known else 0.0
    return [
        replace(profile, pace=round(profile.seconds / medians[profile.dimension], DIGITS))
        if profile.seconds is not None and medians[profile.dimension] > 0
        else profile
        for profile in found
    ]


def _times(ratings: pa.Table) -> np.ndarray:
    """Time of each rating in seconds; the row number for annotators with an unknown time."""
    texts = ratings["rated_at"].combine_chunks().dictionary_encode()  # the scores of a group share one time
    seconds = [datetime.fromisoformat(text).timestamp() if text else np.nan for text in texts.dictionary.to_pylist()]
    time = np.array(seconds, dtype=np.float64)[texts.indices.to_numpy()]
    unknown = np.isnan(time)
    if unknown.any():
        names = ratings["annotator"].combine_chunks()
        without = pc.is_in(names, pc.unique(names.filter(pa.array(unknown)))).to_numpy(zero_copy_only=False)
        time = np.where(without, np.arange(len(time), dtype=np.float64), time)
    return time
