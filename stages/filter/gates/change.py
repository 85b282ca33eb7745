"""Two gates on where and how much an edit differs from its source.

``unchanged``: the edited image is the source, perhaps encoded again. Value ``largest_change``: mean change of the four cells that changed
most (of about 4,096, so an object of a few hundredths of the picture's side still counts in full). Caught below the threshold.

``drift``: the colours changed outside the edit. Value
``background_change``: the median change of that half of the cells which changed least, that is the first quartile. Caught above the
threshold. Null for an instruction that asks for a change of the whole picture (stages/filter/gates/wording.py).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages.filter.gates import wording
from stages.filter.gates.config import DriftGate, UnchangedGate
from stages.filter.gates.finding import Finding, above, below
from stages.filter.gates.pair import Pair

MOST_CHANGED_CELLS = 4


def measure(pair: Pair) -> dict[str, float | None]:
    """Both measures, 0..255."""
    most = np.sort(pair.change.mean(axis=2), axis=None)[-MOST_CHANGED_CELLS:]
    everywhere = wording.asks_for_the_whole_picture(pair.edit.instruction)
    return {
        "largest_change": float(most.mean()),
        "background_change": None if everywhere else float(np.quantile(pair.change.max(axis=2), 0.25)),
    }


def unchanged(inspected: pa.Table, config: UnchangedGate) -> Finding:
    """The edited image is the source."""
    return below(inspected["largest_change"].to_numpy(), config.change)


def drift(inspected: pa.Table, config: DriftGate) -> Finding:
    """The colours changed outside the edit."""
    return above(inspected["background_change"].to_numpy(), config.change)
