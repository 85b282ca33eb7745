"""Do two models differ on the same items? McNemar's exact test (McNemar 1947), and the difference with an interval that respects sources.

McNemar's test takes items to be independent. Items of one source are not, so where sources have many items its p-value is too small; the
clustered interval of the difference does not have that fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from reward.evaluation.bootstrap import Bootstrap
from reward.evaluation.estimate import Estimate


@dataclass(frozen=True)
class McNemar:
    """Counts of items by who is right. p_value: two-sided, of only_first against only_second. difference: accuracy of the first minus the
    second's.
    """

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float
    difference: Estimate


def compare(
    first: Mapping[str, bool],
    second: Mapping[str, bool],
    source_of: Mapping[str, str],
    bootstrap: Bootstrap,
) -> McNemar:
    """Two models' correctness by item. Raises ``ValueError`` where they were not evaluated on the same items."""
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise ValueError(
            f"two models can be compared on the same items only; {odd[0]} and {len(odd) - 1} more were evaluated for one of them"
        )
    if not first:
        raise ValueError("there is no item to compare two models on")
    a, b = (np.array([values[name] for name in first], dtype=bool) for values in (first, second))
    only_first, only_second = int((a & ~b).sum()), int((b & ~a).sum())
    discordant = only_first + only_second
    p_value = float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
    difference = bootstrap.mean(a.astype(np.float64) - b, [source_of[name] for name in first])
    return McNemar(int((a & b).sum()), only_first, only_second, int((~a & ~b).sum()), p_value, difference)
