"""What a gate is: a check of an edit before it costs a forward pass of the reward model.

A gate measures (in a worker, on the decoded images of one edit) and decides (in the driver, by a query on what was measured). A new
threshold therefore needs no second pass over the images. Most gates decide on each edit alone; some compare an edit with others. Each gate
is one file in this folder; stages/filter/gates/config.py lists them.

Configuration is made of these files, so they load quickly: numpy, pyarrow and the like are imported inside the functions that need them
(ruff's rule TID253 checks it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from stages.engine.config import Config

if TYPE_CHECKING:
    from stages.engine.tables import Tables
    from stages.filter.pair import Pair

SEEN = "seen"
Action = Literal["off", "flag", "drop"]


class GateConfig(Config):
    """What the configurations of all gates have in common."""

    action: Action = Field("flag", description="off: not applied; flag: counted, shown and kept; drop: counted, shown and not scored")


@dataclass(frozen=True)
class Finding:
    """What a gate finds on an edit, as expressions in SQL on the columns of ``inspected``: ``value``, which was measured, null where the
    gate does not apply; ``caught``; ``threshold``."""

    value: str
    caught: str
    threshold: str


def above(value: str, threshold: float) -> Finding:
    """Caught where the value is above the threshold."""
    return Finding(value, f"{value} > {threshold!r}::DOUBLE", f"{threshold!r}::DOUBLE")


def below(value: str, threshold: float) -> Finding:
    """Caught where the value is below the threshold."""
    return Finding(value, f"{value} < {threshold!r}::DOUBLE", f"{threshold!r}::DOUBLE")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Everything that a gate consists of.

    ``decide`` says what it finds from the columns of ``inspected``, which has those of all gates. ``measure`` gives this gate's ``columns``
    (Arrow type by name) for one edit; null where it does not apply. ``files`` gives the hashes of what the gate reads beside the data set.
    ``revision`` is raised when the measure changes, so that edits are inspected again.

    A gate that compares edits has ``compare`` instead of ``decide``. It gives a query of the columns ``number`` (which edit), ``value``,
    ``caught`` and ``threshold`` for the edits that have a value. The query reads the view :data:`SEEN` of the edits that no gate before
    it dropped, so that a dropped edit is no reason to drop another: their ``number`` in the data set, ``sample_id``, and the columns of
    ``inspected`` that the gate ``reads``.
    """

    config: type[GateConfig]
    description: str
    caption: str
    decide: Callable[[Any], Finding] | None = None
    compare: Callable[[Tables, Any], str] | None = None
    reads: tuple[str, ...] = ()
    measure: Callable[[Pair], dict[str, float | int | None]] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    files: Callable[[Any], dict[str, str]] | None = None
    revision: int = 1
