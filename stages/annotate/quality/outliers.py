"""Observer screening by outlying scores: the rule of ITU-R BT.500 and the simpler rule of EditHF.

In: a panel of ratings with many raters per item. Out: the raters to reject.

``bt500``: a score is outlying when it is at least 2 sample standard deviations from its item's mean, or sqrt(20) of them where the
item's kurtosis is outside 2..4. A rater with P outliers above and Q below is rejected when (P + Q) / ratings > 5 % and
|P - Q| / (P + Q) < 0.3, so a rater who errs in both directions is rejected and one who is only strict or lenient is not.

``two-sd``: a score is outlying when it is more than 2 sample standard deviations from the mean; a rater with more than
5 % such scores is rejected.

No score of n can be further than (n - 1) / sqrt(n) sample standard deviations from their mean: 1.79 for n = 5, 2.04 for n = 6. Neither
rule can therefore reject anybody below 6 raters per item, so both are refused there.

Sources: Recommendation ITU-R BT.500-14, annex 1 to part 1, section on screening of observers; EditHF (arXiv 2603.14916), section on data;
the largest deviation: P. A. Samuelson, How deviant can you be?, Journal of the American Statistical Association 63, 1968.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from stages.annotate.agreement.alpha import Panel
from stages.annotate.agreement.bootstrap import ratio

Rule = Literal["bt500", "two-sd"]
LEAST_RATERS = 6
BALANCE = 0.3
"""BT.500: outliers on both sides, |P - Q| / (P + Q) below this."""


def outlying_raters(panel: Panel, rule: Rule, share: float) -> dict[int, float]:
    """Codes of the raters to reject, with their share of outliers; items with fewer than 6 raters do not count.

    Raises ``ValueError`` when no item has 6 raters.
    """
    items, item = np.unique(panel.item, return_inverse=True)
    count = np.bincount(item, minlength=len(items))
    most = int(count.max(initial=0))
    if most < LEAST_RATERS:
        largest = (most - 1) / math.sqrt(max(most, 1))
        raise ValueError(
            f"annotate.quality.remove.outliers is {rule}, but no candidate was rated by more than {most} in a round, and of {most} scores "
            f"none can be further than (n - 1) / sqrt(n) = {largest:.2f} standard deviations from their mean: with fewer than "
            f"{LEAST_RATERS} raters the rule can never remove anybody; set it to off (kappa and gold still judge) or have {LEAST_RATERS} "
            "people rate the same groups"
        )
    kept = count[item] >= LEAST_RATERS
    item, value, rater = item[kept], panel.value[kept], panel.rater[kept]
    n = np.bincount(item, minlength=len(items)).astype(np.float64)
    mean = ratio(np.bincount(item, value, len(items)), n)
    off = value - mean[item]
    second, fourth = (ratio(np.bincount(item, off**power, len(items)), n) for power in (2, 4))
    deviation = np.sqrt(ratio(second * n, n - 1))[item]
    kurtosis = ratio(fourth, second**2)[item]
    varies = deviation > 0
    if rule == "bt500":
        bound = np.where((kurtosis >= 2) & (kurtosis <= 4), 2.0, math.sqrt(20)) * deviation
        above, below = varies & (off >= bound), varies & (off <= -bound)
    else:
        above, below = varies & (off > 2 * deviation), varies & (off < -2 * deviation)
    codes = np.unique(rater)
    found = {}
    for code in codes.tolist():
        own = rater == code
        high, low = int(above[own].sum()), int(below[own].sum())
        of_all = (high + low) / int(own.sum())
        both_sides = rule == "two-sd" or abs(high - low) < BALANCE * (high + low)
        if of_all > share and both_sides:
            found[code] = round(of_all, 6)
    return found
