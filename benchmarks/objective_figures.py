"""Figures of `benchmarks/objective.py`: how well a trained model foretells what raters say, and the table of differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from benchmarks.ablations import interval
from reward import RatedGroup
from reward.evaluation.confidence import measure_confidence
from reward.evaluation.metrics import Prediction, labelled_pairs, pair_accuracy
from reward.model.calibration import fit_tie_threshold, log_likelihood, outcome_columns
from reward.model.comparison import outcome_probabilities

HEADS = ("IF", "VQ")
"""Short names of the dimensions, in the order of the toy world's."""
BINS = 20
"""Equal bins of [0, 1] in which the probability of the most likely outcome is compared with how often it came true."""


@dataclass(frozen=True)
class Compared:
    """Pairs as one head sees them, [pair] each; label: 1, 0, or NaN for a tie."""

    margin: np.ndarray
    sigma_a: np.ndarray
    sigma_b: np.ndarray
    label: np.ndarray

    def probabilities(self, threshold: float, scale: float = 1.0) -> np.ndarray:
        """[pair, 3]: of a better, equal, b better."""
        return outcome_probabilities(scale * self.margin, scale * self.sigma_a, scale * self.sigma_b, threshold=threshold)

    def log_p(self, threshold: float, scale: float = 1.0) -> float:
        """Mean log P of what the raters said."""
        return float(log_likelihood(self.probabilities(threshold, scale), outcome_columns(self.label)).mean())

    def threshold(self) -> float:
        """As train-reward fits it where the loss has none."""
        return fit_tie_threshold(self.margin, self.sigma_a, self.sigma_b, self.label)

    def refitted(self) -> tuple[float, float]:
        """Threshold and scale of the greatest likelihood."""
        found = minimize(lambda x: -self.log_p(*np.exp(x).tolist()), [np.log(max(0.05, self.threshold())), 0.0], method="L-BFGS-B")
        threshold, scale = np.exp(found.x).tolist()
        return threshold, scale

    def with_sigma(self, sigma: float) -> Compared:
        """Every edit with the same sigma."""
        return Compared(self.margin, np.full_like(self.margin, sigma), np.full_like(self.margin, sigma), self.label)


def compared(groups: Sequence[RatedGroup], predictions: Sequence[Prediction]) -> list[Compared]:
    """What the overall score sees, then each dimension."""
    heads: list[list[tuple[float, ...]]] = [[] for _ in range(1 + len(HEADS))]
    for group, predicted in zip(groups, predictions, strict=True):
        means = np.column_stack([predicted.overall_mean, predicted.mean])
        sigmas = np.column_stack([predicted.overall_sigma, predicted.sigma])
        for pair in group.preferences:
            for head, label in enumerate((pair.overall, *pair.dimensions)):
                margin = means[pair.a, head] - means[pair.b, head]
                heads[head].append((margin, sigmas[pair.a, head], sigmas[pair.b, head], np.nan if label is None else label))
    return [Compared(*np.array(rows, dtype=np.float64).T) for rows in heads]


def figures(
    *,
    fitted_on: tuple[Sequence[RatedGroup], Sequence[Prediction]],
    rated: tuple[Sequence[RatedGroup], Sequence[Prediction]],
    true: Sequence[RatedGroup],
    thresholds: Sequence[float] | None,
) -> dict[str, float]:
    """Figures of one training. rated, true: the same groups with the raters' labels and with the ground truth; thresholds: as learnt."""
    fit, heads, truth = compared(*fitted_on), compared(*rated), compared(true, rated[1])
    own = [part.threshold() for part in fit] if thresholds is None else list(thresholds)
    overall, first = heads[0], fit[0]
    probabilities, outcome = overall.probabilities(own[0]), outcome_columns(overall.label)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == outcome
    strict = probabilities[outcome != 1][:, [0, 2]]
    strict /= strict.sum(1, keepdims=True)
    strict_right = (strict[:, 0] > 0.5) == (outcome[outcome != 1] == 0)
    average = float(np.sqrt(np.mean(np.square([first.sigma_a, first.sigma_b]))))
    refitted = [head.log_p(*part.refitted()) for head, part in zip(heads, fit, strict=True)]
    return {
        "log P": overall.log_p(own[0]),
        "log P refitted": refitted[0],
        **{f"{name} log P": head.log_p(t) for name, head, t in zip(HEADS, heads[1:], own[1:], strict=True)},
        **{f"{name} log P refitted": value for name, value in zip(HEADS, refitted[1:], strict=True)},
        "three-way accuracy": float(right.mean()),
        "calibration error": calibration_error(confidence, right),
        "calibration error, strict": calibration_error(strict.max(1), strict_right),
        "pair accuracy": pair_accuracy(truth[0].margin, truth[0].label),
        **{f"{name} pair accuracy": pair_accuracy(head.margin, head.label) for name, head in zip(HEADS, truth[1:], strict=True)},
        "sigma adds": measure_confidence(labelled_pairs(*rated), resamples=2).added.value,
        "sigma, in log P": refitted[0] - overall.with_sigma(average).log_p(*first.with_sigma(average).refitted()),
    }


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean distance of confidence and share of right answers over bins, weighted by pairs."""
    inside = np.eye(BINS)[np.minimum((confidence * BINS).astype(int), BINS - 1)]
    return float(np.abs((confidence - right) @ inside).sum() / len(right))


def table(found: Mapping[str, Sequence[Mapping[str, float]]], reference: str, names: Sequence[str]) -> list[str]:
    """Markdown: the reference's figures, and every other variant's difference to it, seed by seed, with t intervals."""
    lines = [f"| variant | {' | '.join(names)} |", "| --- " * (1 + len(names)) + "|"]
    for variant, own in found.items():
        cells = []
        for name in names:
            values = [entry[name] for entry in own]
            base = [entry[name] for entry in found[reference][: len(values)]]
            shown = values if variant == reference else [a - b for a, b in zip(values, base, strict=True)]
            cells.append(interval(shown, ".4f" if variant == reference else "+.4f"))
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return lines
