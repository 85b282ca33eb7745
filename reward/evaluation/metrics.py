"""Agreement of scores with preferences: predictions beside labels, accuracy, and which head predicts which dimension.

Names say which ties count how. A *strict* pair has a label that is not a tie; only strict pairs enter an accuracy. Two equal predicted
scores on a strict pair (`predicted_tie`) count half, as a coin would, or wrong. Every average is over pairs. Arrays are float64 numpy,
labels are P(a preferred) or NaN for a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from reward.inputs.groups import RatedGroup
from reward.model.comparison import preference_probability

Array = np.ndarray


@dataclass(frozen=True)
class Prediction:
    """Scores of the candidates of one group: mean, sigma [candidate, dimension]; overall_mean, overall_sigma [candidate]."""

    mean: Array
    sigma: Array
    overall_mean: Array
    overall_sigma: Array


@dataclass(frozen=True)
class LabelledPairs:
    """Preferences beside predictions, each pair of candidates once.

    overall [pair], dimensions [pair, dimension]: labels. overall_margin [pair], margins [pair, dimension]: predicted score of a minus
    that of b. sigma_a, sigma_b [pair]: overall sigmas. group, source [pair]: number of the pair's group, and of its source.
    """

    overall: Array
    dimensions: Array
    overall_margin: Array
    margins: Array
    sigma_a: Array
    sigma_b: Array
    group: Array
    source: Array

    @cached_property
    def probability(self) -> Array:
        """[pair]: predicted P(a preferred), where ties are not possible."""
        return preference_probability(self.overall_margin, self.sigma_a, self.sigma_b)

    @property
    def strict(self) -> Array:
        """bool [pair]: whether the overall label is not a tie."""
        return ~np.isnan(self.overall)

    def where(self, kept: Array) -> LabelledPairs:
        """The pairs that a bool [pair] names."""
        fields = ("overall", "dimensions", "overall_margin", "margins", "sigma_a", "sigma_b", "group", "source")
        return LabelledPairs(*(getattr(self, name)[kept] for name in fields))


def labelled_pairs(groups: Sequence[RatedGroup], predictions: Sequence[Prediction]) -> LabelledPairs:
    """Join groups and their predictions, pair by pair. Rows made from an overall tie count as that tie: once, unlabelled overall."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(group.source_id for group in groups))}
    rows: list[tuple] = []
    for number, (group, prediction) in enumerate(zip(groups, predictions, strict=True)):
        seen = set()
        for preference in group.preferences:
            a, b, tied = preference.a, preference.b, preference.origin != "plain"
            if (a, b) in seen:
                continue
            seen.add((a, b))
            rows.append(
                (
                    np.nan if tied or preference.overall is None else preference.overall,
                    [np.nan if target is None else target for target in preference.dimensions],
                    prediction.overall_mean[a] - prediction.overall_mean[b],
                    prediction.mean[a] - prediction.mean[b],
                    prediction.overall_sigma[a],
                    prediction.overall_sigma[b],
                    number,
                    sources[group.source_id],
                )
            )
    if not rows:
        raise ValueError("the groups have no preferences to compare with; build preferences from their ratings first")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return LabelledPairs(*(column.astype(np.float64) for column in columns[:6]), columns[6], columns[7])


def correctness(margin: Array, label: Array, predicted_tie: Literal["half", "wrong"] = "half") -> Array:
    """[pair]: 1 where the predicted order is the label's, 0 where not, NaN where the label is a tie."""
    agreement = np.sign(margin) * np.sign(label - 0.5)
    values = np.where(agreement > 0, 1.0, 0.0)
    if predicted_tie == "half":
        values = np.where(margin == 0, 0.5, values)
    return np.where(np.isnan(label) | (label == 0.5), np.nan, values)


def pair_accuracy(margin: Array, label: Array, predicted_tie: Literal["half", "wrong"] = "half") -> float:
    """Share of strict pairs in the right order; NaN when there is no strict pair."""
    values = correctness(margin, label, predicted_tie)
    strict = values[~np.isnan(values)]
    return float(strict.mean()) if len(strict) else float("nan")


def head_dimension_correctness(pairs: LabelledPairs) -> Array:
    """[pair, head, dimension]: `correctness` of each head on each dimension. A head that is identified does best in its own column."""
    return correctness(pairs.margins[:, :, None], pairs.dimensions[:, None, :])
