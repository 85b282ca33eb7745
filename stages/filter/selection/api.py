"""Selections: rules that read scores, so that one scoring serves many of them.

In: a table of the ``scores`` contract, and for quotas and clusters columns beside it. Out: a table of the ``selection`` contract, best
first. A rule is an order (``values``), a bound, and constraints (``quotas``, clusters); ``rule`` puts them together and ``stored`` keeps
the result as a small file that replays. The same scores in any order give the same bytes: ties are broken by sample id, strata are taken
by name, and the random rule draws by a hash of seed and id. Everything is vectorised.
"""

from stages.filter.selection import order
from stages.filter.selection.companions import Companions
from stages.filter.selection.cut import around_cut, main
from stages.filter.selection.order import fixed_width, hashed
from stages.filter.selection.rule import Selection, label, select, size
from stages.filter.selection.values import columns, value_of

__all__ = [
    "Companions",
    "Selection",
    "around_cut",
    "columns",
    "fixed_width",
    "hashed",
    "label",
    "main",
    "order",
    "select",
    "size",
    "value_of",
]
