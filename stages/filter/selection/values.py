"""What a selection orders by: one number per scored edit.

Raw means have neither a zero nor a unit, and the heads of two dimensions need not have the same ones. Their mean keeps its order when a
dimension is shifted; a product does not, and a minimum compares numbers on two scales. So product and minimum are taken on a common scale:
the calibrated Likert score (positive, the raters' own), or the percentile (share of the scored edits that are not better in this
dimension), which needs no calibration but is relative to the scored edits. Means that are only shifted to be positive are not offered:
their zero is the worst edit of the set, so one outlier would change the order of all others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import hashed


def columns_of(config: SelectionConfig) -> list[str]:
    """The columns of ``scores`` that a selection reads for its order and for the flags that it leaves out."""
    return ["sample_id", *_READS.get(config.rule, _READS[config.value]), *(["flags"] if config.without_flags else [])]


def value_of(scores: pa.Table, ids: np.ndarray, config: SelectionConfig) -> tuple[np.ndarray, bool]:
    """The value float64 [n] that the selection orders by, and whether small ones come first.

    Raises ``ValueError`` when the value needs Likert scores and the reward model gave none.
    """
    if config.rule == "random":
        return hashed(ids, "selection", config.seed), True
    if config.rule == "closest-to-source":
        return scores["change_from_source"].to_numpy(), True
    return VALUES[config.value](scores, config), config.rule == "bottom"


def means(scores: pa.Table, field: str = "mean") -> dict[str, np.ndarray]:
    """The ``mean``, ``sigma`` or ``likert`` of every dimension: float64 [n] by name, NaN where there is none.

    Raises ``ValueError`` where rows have not all the same dimensions.
    """
    entries = pc.list_flatten(scores["dimensions"])
    names, values = pc.struct_field(entries, "dimension"), pc.struct_field(entries, field)
    if not scores.num_rows or not len(entries):
        return {}
    every = pc.list_value_length(scores["dimensions"])[0].as_py()
    wanted = [names[place].as_py() for place in range(every)]
    # Every row should repeat the dimensions of the first one; then the flat values are a table [row, dimension]
    expected = np.tile(np.arange(every), scores.num_rows)
    found = pc.index_in(names, value_set=pa.array(wanted)).to_numpy()
    if len(entries) != len(expected) or not np.array_equal(found, expected):
        raise ValueError("the scores' rows have not all the same dimensions in the same order; score the edits with one reward model")
    table = values.to_numpy().reshape(scores.num_rows, every)
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(wanted)}


def percentile(values: np.ndarray) -> np.ndarray:
    """Share of the values that are not larger, in (0, 1]: float64 [n]; equal values share it."""
    return rankdata(values, method="max") / len(values)


def _likert(scores: pa.Table, config: SelectionConfig) -> list[np.ndarray]:
    found = list(means(scores, "likert").values())
    if not found or not all(np.isfinite(column).all() for column in found):
        instead = " or scale percentile" if config.value in ("product", "minimum") else ""
        raise ValueError(
            f"selection {config.name}: value {config.value} needs Likert scores, and the reward model has no map to the raters' scale; "
            f"train it with `pipeline run train-reward`, which calibrates it, or choose value overall{instead}"
        )
    return found


def _common(scores: pa.Table, config: SelectionConfig) -> list[np.ndarray]:
    return _likert(scores, config) if config.scale == "likert" else [percentile(column) for column in means(scores).values()]


def _lower_bound(scores: pa.Table, config: SelectionConfig) -> np.ndarray:
    return scores["overall_mean"].to_numpy() - config.sigmas * scores["overall_sigma"].to_numpy()


def _mean_likert(scores: pa.Table, config: SelectionConfig) -> np.ndarray:
    found = _likert(scores, config)
    return reduce(np.add, found) / len(found)


VALUES: dict[str, Callable[[pa.Table, SelectionConfig], np.ndarray]] = {
    "overall": lambda scores, config: scores["overall_mean"].to_numpy(),
    "lower-bound": _lower_bound,
    "likert": _mean_likert,
    "product": lambda scores, config: reduce(np.multiply, _common(scores, config)),
    "minimum": lambda scores, config: reduce(np.minimum, _common(scores, config)),
}
"""Per name the value, float64 [n]; large ones are good."""
_READS = {
    "random": [],
    "closest-to-source": ["change_from_source"],
    "overall": ["overall_mean"],
    "lower-bound": ["overall_mean", "overall_sigma"],
    "likert": ["dimensions"],
    "product": ["dimensions"],
    "minimum": ["dimensions"],
}
