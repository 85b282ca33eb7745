"""Three outcomes of a comparison: a better, equal, b better. Figures of their prediction, for raters who may call two edits equal.

P of the outcomes is `reward.model.comparison`'s, with a threshold that was fitted on other groups than those measured here. The predicted
outcome is the most likely one. Ties are overall ties of the ratings, each pair once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reward.evaluation.bootstrap import Array, SourceDraws
from reward.evaluation.confidence import Bin, binned
from reward.evaluation.estimate import Estimate
from reward.evaluation.metrics import LabelledPairs, correctness
from reward.model.calibration import log_likelihood, outcome_columns
from reward.model.comparison import outcome_probabilities


@dataclass(frozen=True)
class ThreeWay:
    """All pairs, ties included.

    accuracy: of the most likely outcome. never_tie: of the order alone, which is wrong on every tie. tie_share: share of ties, the
    accuracy of always naming a tie. log_likelihood: mean log P of the true outcome; uninformed: of a constant prediction that knows the
    share of ties and nothing else. ties: P(tie) against how often people called the pair equal, in bins of about equally many pairs.
    """

    threshold: float
    pairs: int
    accuracy: Estimate
    never_tie: Estimate
    tie_share: Estimate
    log_likelihood: Estimate
    uninformed: float
    ties: list[Bin]


def measure_three_way(pairs: LabelledPairs, *, threshold: float, bins: int = 5, resamples: int = 2000, seed: int = 0) -> ThreeWay:
    """Everything about three outcomes; pairs are of groups that the threshold was not fitted on, at least one."""
    probabilities = outcome_probabilities(pairs.overall_margin, pairs.sigma_a, pairs.sigma_b, threshold=threshold)
    outcome = outcome_columns(pairs.overall)
    tied = (outcome == 1).astype(np.float64)
    ordered = np.nan_to_num(correctness(pairs.overall_margin, pairs.overall))
    right = (outcome == probabilities.argmax(1)).astype(np.float64)
    columns = np.stack([right, ordered, tied, log_likelihood(probabilities, outcome)], axis=1)
    draws = SourceDraws.of(pairs.source, resamples=resamples, seed=seed)
    accuracy, never_tie, tie_share, likelihood = draws.mean_intervals(columns, np.ones_like(columns))
    share = tie_share.value
    constant = np.tile([(1 - share) / 2, share, (1 - share) / 2], (len(outcome), 1))
    return ThreeWay(
        threshold=threshold,
        pairs=len(outcome),
        accuracy=accuracy,
        never_tie=never_tie,
        tie_share=tie_share,
        log_likelihood=likelihood,
        uninformed=float(log_likelihood(constant, outcome).mean()),
        ties=_tie_bins(probabilities[:, 1], tied, draws, bins),
    )


def _tie_bins(predicted: Array, tied: Array, draws: SourceDraws, bins: int) -> list[Bin]:
    """From the least to the most likely ties; equal predictions are never split."""
    edges = np.unique(np.quantile(predicted, np.arange(1, bins) / bins))
    inside = np.eye(len(edges) + 1)[np.searchsorted(edges, predicted, side="left")]
    return binned(predicted, tied, inside, draws)
