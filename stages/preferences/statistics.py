"""Statistics of ratings for the report: ties, win rates of editors, distributions of scores, severity of raters.

In: complete groups or the ledger's ratings. Out: plain values. Intervals are 95 %, from a bootstrap over groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reward.inputs.groups import TIE_TOLERANCE
from stages.annotate.agreement.alpha import OVERALL, overall, panels
from stages.annotate.agreement.bootstrap import DIGITS, estimate, resampled_sums, share
from stages.annotate.ratings.groups import CompleteGroup

PAPER_TIES = {"instruction_following": 0.3828, "visual_quality": 0.3283, OVERALL: 0.2068}
"""Shares of tied pairs in EditReward-Data (dataset statistics of the EditReward paper)."""


def tie_shares(groups: Sequence[CompleteGroup], dimensions: Sequence[str]) -> dict[str, float]:
    """Share of tied pairs per dimension and overall (the sum); ``opposed``: share of overall ties whose dimensions disagree."""
    gaps = np.concatenate([gaps_of(group)[np.triu_indices(len(group.candidates), 1)] for group in groups])  # [pairs, dimensions + 1]
    tied = np.abs(gaps) <= TIE_TOLERANCE
    opposed = tied[:, -1] & (gaps[:, :-1].max(1, initial=0) > TIE_TOLERANCE) & (gaps[:, :-1].min(1, initial=0) < -TIE_TOLERANCE)
    shares = dict(zip([*dimensions, OVERALL], tied.mean(0), strict=True)) | {"opposed": opposed.mean()}
    return {name: round(float(value), DIGITS) for name, value in shares.items()}


def win_rates(
    groups: Sequence[CompleteGroup], editor_of: Mapping[str, str], dimensions: Sequence[str], *, seed: int
) -> dict[str, dict[str, Any]]:
    """Win rate per editor, dimension and overall, over its pairs with candidates of other editors; a tie counts one half."""
    editors = sorted({editor_of[candidate] for group in groups for candidate in group.candidates})
    names = [*dimensions, OVERALL]
    tables = np.zeros((len(groups), len(editors), len(names), 2))  # (wins, pairs) by group, editor and dimension
    for table, group in zip(tables, groups, strict=True):
        editor = np.array([editors.index(editor_of[candidate]) for candidate in group.candidates])
        gaps = gaps_of(group)
        credit = np.where(np.abs(gaps) <= TIE_TOLERANCE, 0.5, gaps > 0)
        other = editor[:, None] != editor[None, :]
        for i, row in enumerate(editor):
            table[row, :, 0] += credit[i][other[i]].sum(0)
            table[row, :, 1] += other[i].sum()
    sums = resampled_sums(tables, seed=seed)
    return {
        editor: {
            name: estimate(tables[:, e, d], sums[:, e, d], share, n=int(tables[:, e, d, 1].sum()), undefined="no other editor").to_json()
            for d, name in enumerate(names)
        }
        for e, editor in enumerate(editors)
    }


def score_shares(ratings: pa.Table, of: Mapping[str, str], key: str, levels: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Distribution of the scores per value of ``of`` (editor of a candidate, task of a source, ...) and dimension.

    key: column of the ids that ``of`` maps. Every entry has ``ratings``, ``mean`` and ``levels``, the share of each level.
    """
    counts: defaultdict[str, defaultdict[str, Counter[float]]] = defaultdict(lambda: defaultdict(Counter))
    for name, dimension, score in zip(*(ratings[column].to_pylist() for column in (key, "dimension", "score")), strict=True):
        counts[of[name]][dimension][score] += 1
    return {
        name: {dimension: _distribution(scores, levels) for dimension, scores in sorted(per_dimension.items())}
        for name, per_dimension in sorted(counts.items())
    }


def severity(ratings: pa.Table) -> dict[str, dict[str, Any]]:
    """Per rater and dimension: mean score, and mean difference from the others on the same candidates (positive: lenient)."""
    names = sorted(set(ratings["annotator"].to_pylist()))
    result: dict[str, dict[str, Any]] = {name: {} for name in names}
    for dimension, panel in (panels(ratings) | {OVERALL: overall(ratings)}).items():
        sums, counts = np.bincount(panel.item, panel.value), np.bincount(panel.item)
        others = counts[panel.item] - 1
        difference = panel.value - (sums[panel.item] - panel.value) / np.maximum(others, 1)
        for code, name in enumerate(names):
            own = panel.rater == code
            compared = own & (others > 0)
            if own.any():
                result[name][dimension] = {
                    "ratings": int(own.sum()),
                    "mean": round(float(panel.value[own].mean()), DIGITS),
                    "compared": int(compared.sum()),
                    "difference": round(float(difference[compared].mean()), DIGITS) if compared.any() else None,
                }
    return result


def _distribution(scores: Counter[float], levels: Sequence[float]) -> dict[str, Any]:
    total = scores.total()
    return {
        "ratings": total,
        "mean": round(sum(score * count for score, count in scores.items()) / total, DIGITS),
        "levels": {f"{level:g}": round(scores[level] / total, DIGITS) for level in levels},
    }


def gaps_of(group: CompleteGroup) -> np.ndarray:
    """Score of one candidate minus that of another, per dimension and for their sum: [candidate, candidate, dimension + 1]."""
    scores = np.concatenate([group.scores, group.scores.sum(1, keepdims=True)], axis=1)
    return scores[:, None, :] - scores[None, :, :]
