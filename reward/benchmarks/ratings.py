"""Figures of a benchmark of single ratings (ImagenHub, AURORA): rank correlation per editor, and order within a source.

Correlation per editor asks which sources an editor does well on. Order within a source asks which editor did better on it, which is what a
reward model is for; no published table has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from reward.benchmarks.figures import Bootstrap
from reward.benchmarks.items import Rating, Scores, predictions
from reward.benchmarks.ranks import DIGITS, averages, spearman
from reward.benchmarks.result import BenchmarkResult, Measured, assess

Average = Literal["mean", "fisher", "tanh_of_mean"]
SOUND: tuple[Average, ...] = ("mean", "fisher")
WORDS: dict[str, str] = {"mean": "mean of rho", "fisher": "Fisher average of rho", "tanh_of_mean": "tanh(mean rho)"}


def measure(items: Sequence[Rating], scores: Scores, bootstrap: Bootstrap, published: Average) -> Measured:
    """Averages over editors of Spearman's rho, and the share of pairs of one source in the order of their ratings."""
    predicted, human = predictions(items, scores), np.array([item.score for item in items])
    editors, editor = np.unique([item.editor for item in items], return_inverse=True)
    source = [item.source for item in items]

    def correlations(drawn: np.ndarray) -> list[float]:
        rows = [drawn[editor[drawn] == number] for number in range(len(editors))]
        return [spearman(predicted[inside], human[inside]) for inside in rows if len(inside)]

    figures = bootstrap.of_several(lambda drawn: {WORDS[k]: v for k, v in vars(averages(correlations(drawn))).items()}, source)
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
    notes: Sequence[str] = (),
) -> BenchmarkResult:
    """Model and floors."""
    by_editor = defaultdict(set)
    for item in items:
        by_editor[item.editor].add(round(item.score, DIGITS))
    counts = {
        "editors": len(by_editor),
        "editors whose ratings are all equal": sum(len(values) == 1 for values in by_editor.values()),
        "ratings of 0": sum(item.score == 0 for item in items),
    }
    return assess(
        benchmark,
        items,
        scores,
        lambda values: measure(items, values, bootstrap, published),
        seed=bootstrap.seed,
        counts=counts,
        notes=notes,
    )


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
            right = bool(margin * gap > 0)
            values.append(0.5 if margin == 0 else float(right))
            name = f"{items[a].item_id} against {items[b].item_id}"
            correct[name], source_of[name] = right, source
    return np.array(values), correct, source_of
