"""What a selection orders by: one number per scored edit.

Raw means have neither a zero nor a unit, and the heads of two dimensions need not have the same ones. Their mean keeps its order when a
dimension is shifted; a product does not, and a minimum compares numbers on two scales. So product and minimum are taken on a common scale:
the calibrated Likert score (positive, the raters' own), or the percentile (share of the scored edits that are not better in this
dimension), which needs no calibration but is relative to the scored edits. Means that are only shifted to be positive are not offered:
their zero is the worst edit of the set, so one outlier would change the order of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import fixed_width, hashed


def columns_of(config: SelectionConfig) -> list[str]:
    """The columns of ``scores`` that a selection reads for its order."""
    return ["sample_id", *_READS.get(config.rule, _READS[config.value])]


def ascends(config: SelectionConfig) -> bool:
    """Whether small values come first."""
    return config.rule in ("random", "closest-to-source", "bottom")


def by_percentile(config: SelectionConfig) -> bool:
    """Whether the value is made of percentiles, which only all edits together give."""
    return config.rule not in ("random", "closest-to-source") and config.value in COMBINED and config.scale == "percentile"


def value_of(scores: pa.Table, config: SelectionConfig) -> np.ndarray:
    """The value float64 [n] that the selection orders by; any rows of the scores.

    Raises ``ValueError`` when the value needs Likert scores and the reward model gave none.
    """
    if config.rule == "random":
        return hashed(fixed_width(scores["sample_id"]), "selection", config.seed)
    if config.rule == "closest-to-source":
        return scores["change_from_source"].to_numpy()
    return VALUES[config.value](scores, config)


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
        raise ValueError(DIFFERENT)
    table = values.to_numpy().reshape(scores.num_rows, every)
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(wanted)}


def _likert(scores: pa.Table, config: SelectionConfig) -> list[np.ndarray]:
    found = list(means(scores, "likert").values())
    if not found or not all(np.isfinite(column).all() for column in found):
        instead = " or scale percentile" if config.value in COMBINED else ""
        raise ValueError(
            f"selection {config.name}: value {config.value} needs Likert scores, and the reward model has no map to the raters' scale; "
            f"train it with `pipeline run train-reward`, which calibrates it, or choose value overall{instead}"
        )
    return found


def _lower_bound(scores: pa.Table, config: SelectionConfig) -> np.ndarray:
    return scores["overall_mean"].to_numpy() - config.sigmas * scores["overall_sigma"].to_numpy()


def _mean_likert(scores: pa.Table, config: SelectionConfig) -> np.ndarray:
    found = _likert(scores, config)
    return reduce(np.add, found) / len(found)


DIFFERENT = "the scores' rows have not all the same dimensions in the same order; score the edits with one reward model"
COMBINED: dict[str, Callable[[Sequence[str]], str]] = {
    "product": " * ".join,
    "minimum": lambda columns: f"least({', '.join(columns)})",
}
"""Values of all dimensions on a common scale, in SQL, of an expression per dimension."""
VALUES: dict[str, Callable[[pa.Table, SelectionConfig], np.ndarray]] = {
    "overall": lambda scores, _: scores["overall_mean"].to_numpy(),
    "lower-bound": _lower_bound,
    "likert": _mean_likert,
    "product": lambda scores, config: reduce(np.multiply, _likert(scores, config)),
    "minimum": lambda scores, config: reduce(np.minimum, _likert(scores, config)),
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
