"""Figures of a benchmark of single pairs with three labels (GenAI-Bench, AURORA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reward.benchmarks import ties
from reward.benchmarks.items import Comparison, Scores, margins
from reward.benchmarks.result import BenchmarkResult, Measured, assess
from reward.evaluation.bootstrap import Bootstrap


def measure(items: Sequence[Comparison], scores: Scores, bootstrap: Bootstrap) -> Measured:
    """Accuracy with ties and without. The interval of the oracle figure keeps its threshold fixed."""
    margin, label = margins(items, scores), np.array([item.label for item in items])
    source = [item.source for item in items]
    threshold = ties.oracle_threshold(margin, label)
    fitted = ties.cross_fitted(margin, label, source, seed=bootstrap.seed)
    return Measured(
        published={
            "with ties, oracle threshold": bootstrap.mean(ties.three_way(margin, label, threshold), source),
            "without ties, equal scores wrong": bootstrap.mean(ties.decisive(margin, label, "wrong"), source),
        },
        sound={
            "with ties, cross-fitted threshold": bootstrap.mean(fitted, source),
            "without ties, equal scores half": bootstrap.mean(ties.decisive(margin, label, "half"), source),
        },
        details={"oracle threshold": threshold},
        correct={item.item_id: bool(right) for item, right in zip(items, fitted, strict=True)},
        source_of={item.item_id: item.source for item in items},
    )


def evaluate(
    benchmark: str, items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap, notes: Sequence[str] = ()
) -> BenchmarkResult:
    """Model and trivial baselines. Chance is the share of each label, which a constant prediction reaches with ties."""
    label = np.array([item.label for item in items])
    chance = {f"always {name}": share for name, share in ties.label_shares(label).items()} if len(items) else {}
    counts = {"decided": int((label != 0).sum()), "ties": int((label == 0).sum())}
    return assess(benchmark, items, scores, measure, bootstrap, chance=chance, counts=counts, notes=notes)
