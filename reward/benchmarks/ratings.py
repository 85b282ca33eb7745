"""Figures of a benchmark of single ratings (ImagenHub, AURORA): rank correlation per editor, and order within a source.

Correlation per editor asks which sources an editor does well on. Order within a source asks which editor did better on it, which is what a
reward model is for; no published table has it.

Published tables average Spearman's rho of the editors as tanh(mean rho) and call it a Fisher average (VIEScore, arXiv 2312.14867, and
those after it). Fisher's average is tanh(mean artanh rho). The plain mean needs no name. All three are shown here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.stats import spearmanr

from reward.benchmarks.items import Rating, Scores, predictions
from reward.benchmarks.result import BenchmarkResult, Measured, assess
from reward.evaluation.bootstrap import Bootstrap

DIGITS = 9
"""Values are rounded before they are ranked: sums of ratings in another order differ in the last bit and would not be ties."""
LARGEST = 1 - 1e-9
"""|rho| in Fisher's average is cut here: a single correlation of 1 would otherwise be the average."""

Average = Literal["mean", "fisher", "tanh_of_mean"]
SOUND: tuple[Average, ...] = ("mean", "fisher")
WORDS: dict[Average, str] = {"mean": "mean of rho", "fisher": "Fisher average of rho", "tanh_of_mean": "tanh(mean rho)"}


def spearman(predicted: np.ndarray, human: np.ndarray) -> float:
    """Spearman's rho of [item] values, ties by average rank; NaN where the human values are all equal.

    A prediction that is NaN gets the median prediction: it says nothing about its item and pulls rho towards 0; leaving it out would raise
    rho. Predictions that are all equal order nothing: 0.
    """
    known = predicted[~np.isnan(predicted)]
    filled = np.where(np.isnan(predicted), np.median(known) if len(known) else 0.0, predicted)
    x, y = np.round(filled, DIGITS), np.round(human, DIGITS)
    if (y == y[0]).all():
        return math.nan
    return 0.0 if (x == x[0]).all() else float(spearmanr(x, y).statistic)


def averages(correlations: Sequence[float]) -> dict[Average, float]:
    """The correlations that are defined, averaged in three ways; NaN where none is."""
    defined = np.array([value for value in correlations if not math.isnan(value)])
    mean = float(defined.mean()) if len(defined) else math.nan
    fisher = float(np.tanh(np.arctanh(np.clip(defined, -LARGEST, LARGEST)).mean())) if len(defined) else math.nan
    return {"mean": mean, "fisher": fisher, "tanh_of_mean": math.tanh(mean)}


def rater_correlations(raters: np.ndarray) -> list[float]:
    """Spearman's rho of each rater with the mean of the others. raters: scores [item, rater]."""
    return [spearman(raters[:, rater], np.delete(raters, rater, axis=1).mean(axis=1)) for rater in range(raters.shape[1])]


def human_agreement(items: Sequence[Rating]) -> dict[Average, float] | None:
    """Averages over editors of the mean correlation of a rater with the others; None where the raters' own scores are not known.

    tanh_of_mean applies the tanh to the raters of an editor, and again to the editors, as published.
    """
    if not items or any(len(item.raters) < 2 for item in items):
        return None
    found = [averages(rater_correlations(np.array([item.raters for item in rated]))) for rated in _by_editor(items).values()]
    return {kind: averages([one[kind] for one in found])[kind] for kind in found[0]}


def measure(items: Sequence[Rating], scores: Scores, bootstrap: Bootstrap, published: Average) -> Measured:
    """Averages over editors of Spearman's rho, and the share of pairs of one source in the order of their ratings."""
    predicted, human = predictions(items, scores), np.array([item.score for item in items])
    editors, editor = np.unique([item.editor for item in items], return_inverse=True)
    source = [item.source for item in items]

    def correlations(drawn: np.ndarray) -> list[float]:
        """Per editor, over the drawn items; an editor that a resample misses is left out."""
        rows = [drawn[editor[drawn] == number] for number in range(len(editors))]
        return [spearman(predicted[inside], human[inside]) for inside in rows if len(inside)]

    figures = bootstrap.of_several(lambda drawn: {WORDS[k]: v for k, v in averages(correlations(drawn)).items()}, source)
    order, correct, source_of = _order_within_sources(items, predicted, human)
    return Measured(
        published={WORDS[published]: figures[WORDS[published]]},
        sound={WORDS[kind]: figures[WORDS[kind]] for kind in SOUND if kind != published}
        | {"order within a source, equal scores half": bootstrap.mean(order, list(source_of.values()))},
        details={f"rho of {name}": value for name, value in zip(editors.tolist(), correlations(np.arange(len(items))), strict=True)},
        correct=correct,
        source_of=source_of,
    )


def evaluate(
    benchmark: str,
    items: Sequence[Rating],
    scores: Scores,
    *,
    bootstrap: Bootstrap,
    published: Average,
    notes: Iterable[str] = (),
) -> BenchmarkResult:
    """Model and trivial baselines."""
    levels = [{round(item.score, DIGITS) for item in rated} for rated in _by_editor(items).values()]
    counts = {
        "editors": len(levels),
        "editors whose ratings are all equal": sum(len(values) == 1 for values in levels),
        "ratings of 0": sum(item.score == 0 for item in items),
    }
    people = human_agreement(items)
    if people is not None:
        text = f"one rater against the mean of the others reaches {people[published]:.4f} by the published average"
        notes = [*notes, f"{text}, {people['mean']:.4f} as the mean of rho"]
    return assess(benchmark, items, scores, partial(measure, published=published), bootstrap, counts=counts, notes=notes)


def _by_editor(items: Sequence[Rating]) -> dict[str, list[Rating]]:
    found = defaultdict(list)
    for item in items:
        found[item.editor].append(item)
    return found


def _order_within_sources(
    items: Sequence[Rating], predicted: np.ndarray, human: np.ndarray
) -> tuple[np.ndarray, dict[str, bool], dict[str, str]]:
    """Pairs of one source with different ratings: [pair] 1 right, 0 wrong, 0.5 equal scores; right by name; source by name."""
    members = defaultdict(list)
    for number, item in enumerate(items):
        members[item.source].append(number)
    values, correct, source_of = [], {}, {}
    for source, numbers in members.items():
        for a, b in combinations(numbers, 2):
            gap = round(human[a] - human[b], DIGITS)
            if gap == 0:
                continue
            margin = predicted[a] - predicted[b]
            right = bool(margin * gap > 0)  # a margin of NaN (no score) is wrong
            values.append(0.5 if margin == 0 else float(right))
            name = f"{items[a].item_id} against {items[b].item_id}"
            correct[name], source_of[name] = right, source
    return np.array(values), correct, source_of
