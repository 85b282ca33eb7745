"""Six simulated raters: the ground-truth quality (a level from 1 to 4), plus the rater's bias in that dimension, plus noise,
rounded and clipped to 1..4. The noise is the same for every edit, or it depends on the flaw: people agree on an exact edit and on a clear
failure, and differ over half an edit, a side effect, a blur or a colour cast.
"""

from __future__ import annotations

from math import exp, floor
from statistics import NormalDist

from stages.world.seeds import Key, uniform

RATERS = ("r1", "r2", "r3", "r4", "r5", "r6")
BIAS_DEVIATION = 0.25
NOISE_DEVIATION = 0.4
"""Noise where it does not depend on the edit, in levels."""
CLEAR_DEVIATION, AMBIGUOUS_DEVIATION = 0.2, 0.8
"""Noise where it depends on the flaw, in levels."""
AMBIGUOUS = frozenset({"ghost", "side-resize", "over-edit", "half", "blur", "cast"})
"""Flaws over which raters differ."""
_NORMAL = NormalDist()


def _normal(*key: Key) -> float:
    return _NORMAL.inv_cdf(uniform(*key))


def bias(rater: str, dimension: str, seed: int) -> float:
    """By how much a rater is lenient (positive) or strict in a dimension, in levels."""
    return BIAS_DEVIATION * _normal("bias", rater, dimension, seed)


def deviation(flaw: str) -> float:
    """Standard deviation of the noise, in levels, where it depends on the flaw of the edit in the rated dimension."""
    return AMBIGUOUS_DEVIATION if flaw in AMBIGUOUS else CLEAR_DEVIATION


def rate(rater: str, candidate_id: str, dimension: str, ground_truth: int, seed: int, *, noise: float = NOISE_DEVIATION) -> int:
    """The rating 1..4 that a rater gives, the same at every call. noise: its standard deviation in levels."""
    drawn = noise * _normal("noise", rater, candidate_id, dimension, seed)
    return min(4, max(1, floor(ground_truth + bias(rater, dimension, seed) + drawn + 0.5)))


def seconds(rater: str, candidate_id: str, dimension: str, seed: int) -> float:
    """How long the rater took for it: log-normal, median 5 s times the rater's own pace, to a tenth of a second."""
    pace = 0.25 * _normal("pace", rater, seed)
    return round(5 * exp(pace + 0.4 * _normal("seconds", rater, candidate_id, dimension, seed)), 1)
