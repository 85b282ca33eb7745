"""The edits on both sides of a selection's cut: the last ones that it keeps and the best ones that it leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import first, fixed_width
from stages.filter.selection.values import value_of

MAIN = "selected"


def main(selections: Sequence[SelectionConfig]) -> SelectionConfig | None:
    """The selection that the data set is filtered for: the one named ``selected``, else the first that orders by scores, else None."""
    scored = [entry for entry in selections if entry.rule == "top"]
    return next((entry for entry in scored if entry.name == MAIN), scored[0] if scored else None)


def around_cut(scores: pa.Table, config: SelectionConfig, table: pa.Table, most: int) -> tuple[list[str], list[str]]:
    """Ids of the kept samples with the last ranks, nearest to the cut first, and of the best that are not kept; at most ``most`` each.

    With quotas or clusters a sample that was left out can have a better value than one that was kept.
    """
    just_in = table["sample_id"][-most:].to_pylist()[::-1]
    ids = fixed_width(scores["sample_id"])
    value, ascending = value_of(scores, ids, config)
    left = np.flatnonzero(~pc.is_in(scores["sample_id"], value_set=table["sample_id"].combine_chunks()).to_numpy())
    if not len(left):
        return just_in, []
    key = value[left] if ascending else -value[left]
    chosen = left[first(key, ids[left], min(most, len(left)))]
    return just_in, [name.decode() for name in ids[chosen].tolist()]
