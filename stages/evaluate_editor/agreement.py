"""How far two judges agree on the same edits: ranks of edits, order of systems, and pairs of edits of one item.

Two edits are the same where item, language, system and pixels are. Items are resampled for the intervals: edits of one source are not
independent. The bounds (copy of the source, exact edit) are left out, since any judge can tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import kendalltau, spearmanr

from reward.evaluation.bootstrap import Bootstrap
from reward.evaluation.estimate import Estimate
from stages.evaluate_editor.systems import COPY, EXACT

Key = tuple[str, str, str, str]
"""Item, language, system, edit."""
LEAST_SYSTEMS = 3
"""Below that, an order of systems says nothing that the pairs do not."""


@dataclass(frozen=True)
class JudgeAgreement:
    """``edits``: judged by both; ``failed``: by one of them only. ``spearman``: of the scores of edits. ``systems``: Kendall's tau-b of the
    systems' mean scores. ``pairs``: share of pairs of edits of one item, both judges having a preference, in which it is the same;
    ``outcomes``: share of all pairs with the same outcome of three (better, equal, worse). ``offset``: mean score of b minus that of a.
    """

    a: str
    b: str
    edits: int
    failed: int
    spearman: Estimate
    systems: Estimate
    pairs: Estimate
    outcomes: Estimate
    offset: Estimate


def agreements(verdicts: Sequence[Mapping[str, Any]], bootstrap: Bootstrap) -> list[JudgeAgreement]:
    """Of every two judges. ``verdicts``: rows of that contract, of one run or several.

    Raises ``ValueError`` where there is one judge only, and where two judges have no edit in common.
    """
    scores: dict[str, dict[Key, float | None]] = {}
    for row in verdicts:
        if row["arm"] not in (COPY, EXACT) and row["status"] != "missing":
            key = row["item_id"], row["language"], row["arm"], row["edit_id"]
            scores.setdefault(row["judge_revision"], {})[key] = row["overall"]
    if len(scores) < 2:
        raise ValueError(
            f"the verdicts are of {next(iter(scores), 'no judge')} alone; name another one in evaluate_editor.further_judges, "
            "or a second --run"
        )
    return [_agreement(a, b, scores[a], scores[b], bootstrap) for a, b in combinations(scores, 2)]


def _agreement(a: str, b: str, of_a: Mapping[Key, float | None], of_b: Mapping[Key, float | None], bootstrap: Bootstrap) -> JudgeAgreement:
    shared = sorted(of_a.keys() & of_b.keys())
    if not shared:
        raise ValueError(f"{a} and {b} have judged no edit in common; both must judge the same images of the same systems")
    keys = [key for key in shared if of_a[key] is not None and of_b[key] is not None]
    scores = np.array([[of_a[key], of_b[key]] for key in keys], dtype=np.float64).reshape(-1, 2)  # [edit, judge]
    items = [key[0] for key in keys]
    signs, of_pair = _pairs(keys, scores)
    strict = (signs != 0).all(1)
    same = np.where(strict, (signs[:, 0] == signs[:, 1]).astype(np.float64), np.nan)
    return JudgeAgreement(
        a,
        b,
        edits=len(keys),
        failed=len(shared) - len(keys),
        spearman=_of(lambda rows: _correlation(spearmanr, scores[rows]), items, bootstrap),
        systems=_systems(keys, scores, bootstrap),
        pairs=bootstrap.mean(same, of_pair),
        outcomes=bootstrap.mean((signs[:, 0] == signs[:, 1]).astype(np.float64), of_pair),
        offset=bootstrap.mean(scores[:, 1] - scores[:, 0], items),
    )


def _pairs(keys: Sequence[Key], scores: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Which edit of a pair of one item each judge prefers, [pair, judge] of -1, 0 and 1; and the item of each pair."""
    rows: dict[tuple[str, str], list[int]] = {}
    for row, (item, language, *_) in enumerate(keys):
        rows.setdefault((item, language), []).append(row)
    found = [(item, one, other) for (item, _), members in rows.items() for one, other in combinations(members, 2)]
    signs = np.array([np.sign(scores[other] - scores[one]) for _, one, other in found]).reshape(-1, 2)
    return signs, [item for item, _, _ in found]


def _systems(keys: Sequence[Key], scores: np.ndarray, bootstrap: Bootstrap) -> Estimate:
    """Of the systems' means over the items that have an edit of each of them that both judges scored."""
    names = sorted({key[2] for key in keys})
    if len(names) < LEAST_SYSTEMS:
        return Estimate(float("nan"), note=f"fewer than {LEAST_SYSTEMS} systems")
    by_item: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for (item, language, name, _), pair in zip(keys, scores, strict=True):
        by_item.setdefault((item, language), {})[name] = pair
    whole = {key: entry for key, entry in by_item.items() if len(entry) == len(names)}
    if not whole:
        return Estimate(float("nan"), note="no item has all systems' edits judged by both")
    table = np.array([[entry[name] for name in names] for entry in whole.values()])  # [item, system, judge]
    return _of(lambda rows: _correlation(kendalltau, table[rows].mean(0)), [item for item, _ in whole], bootstrap)


def _of(statistic: Any, items: Sequence[str], bootstrap: Bootstrap) -> Estimate:
    return bootstrap.of(statistic, items) if items else Estimate(float("nan"), note="nothing was judged by both")


def _correlation(measure: Any, values: np.ndarray) -> float:
    """Of [n, judge]; NaN where a judge gave all the same score."""
    if len(values) < 2 or (values == values[0]).all(0).any():
        return float("nan")
    return float(measure(values[:, 0], values[:, 1]).statistic)
