"""The scores of the edits that are left, put together from units of this run and of earlier ones, with the flags of the gates.

A unit of scoring has some rows of a slice, and stays on the disk when a gate drops some of them later, or lets more pass: only rows that no
unit has are scored. The tables ``edits`` and ``scores`` that the step publishes have exactly the rows that are left, in the order of the
data set. Their flags are decided here, because another threshold must not score anything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import compare, match
from stages.datasets import readers as edits
from stages.engine import contracts, unit_log
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import UnitRecord, publish_table
from stages.filter.selection.side_columns import has_any


@dataclass(frozen=True)
class Scored:
    """``artifacts``: edits, scores and quarantine in parts; ``out``: scored rows; ``quarantined``: rows by reason; ``flags``: scored edits
    by flag; ``units``: keys of all units of these slices, also of those whose rows are not left."""

    artifacts: dict[str, list[Part]]
    out: int
    quarantined: dict[str, int]
    flags: dict[str, int]
    units: frozenset[str]


def known(step: StepFolder, families: Iterable[str]) -> dict[str, list[UnitRecord]]:
    """Finished units by the slice that they are of. A unit of an earlier version has the key of its slice."""
    found: dict[str, list[UnitRecord]] = {family: [] for family in families}
    for record in unit_log.sound(step).values():
        family = record.family or record.key
        if family in found and "scores" in record.parts and unit_log.is_whole(step, record):
            found[family].append(record)
    return found


def rows_in(step: StepFolder, records: Sequence[UnitRecord]) -> np.ndarray:
    """Numbers of the rows that units have scored or set aside, int64 [n]."""
    tables = [step.read_table(name, [record.parts[name] for record in records], ["position"]) for name in ("edits", "quarantine")]
    return np.concatenate([np.zeros(0, np.int64), *(edits.numbers_of(table["position"]) for table in tables)])


def assemble(
    step: StepFolder, slices: Sequence[Sequence[UnitRecord]], left: np.ndarray, gated: pa.Table, gates: Sequence[str], hits: pa.Table | None
) -> Scored:
    """The rows numbered ``left``, ascending int64 [n], of the units of all slices in the order of the data set.

    gated: a table of that contract. gates: names of those that apply. hits: a table of the contract ``contamination``;
    None where there was nothing to compare with, so that nobody takes edits for compared.
    """
    parts: dict[str, list[Part]] = {"edits": [], "scores": [], "quarantine": []}
    scores, reasons = [], Counter[str]()
    for records in slices:
        for name in ("edits", "quarantine"):
            table, order = _in_order(step, records, name, left)
            parts[name] += publish_table(step, name, table)
            if name == "edits":
                scores.append(_whole(step, records, "scores").take(order))
                assert scores[-1]["sample_id"].equals(table["sample_id"]), "edits and scores have the same rows"
            else:
                reasons.update(table["reason"].to_pylist())
    whole = pa.concat_tables([contracts.SCORES.empty_table(), *scores])
    marks = _flags(whole, gated, gates, hits)
    parts["scores"] = publish_table(step, "scores", with_flags(whole, marks))
    flags = {name: int(mark.sum()) for name, mark in marks.items()}
    units = frozenset(record.key for records in slices for record in records)
    return Scored(parts, whole.num_rows, dict(sorted(reasons.items())), flags, units)


def with_flags(scores: pa.Table, marks: Mapping[str, np.ndarray]) -> pa.Table:
    """The scores with the names of the ``marks``, bool [n] each, in the column ``flags``."""
    table = np.stack([*marks.values()], axis=1) if marks else np.zeros((scores.num_rows, 0), bool)
    names = pa.array([*marks], pa.string()).take(pa.array(np.nonzero(table)[1]))
    ends = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
    flags = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names)
    return scores.set_column(scores.schema.get_field_index("flags"), scores.schema.field("flags"), flags.cast(pa.list_(pa.string())))


def _flags(scores: pa.Table, gated: pa.Table, gates: Sequence[str], hits: pa.Table | None) -> dict[str, np.ndarray]:
    """Which edits have each flag that there can be, bool [n]: those of scoring, of the gates, of contamination."""
    given = pc.unique(pc.list_flatten(scores["flags"].combine_chunks())).to_pylist()
    marks = {name: has_any(scores["flags"], [name]) for name in given}
    caught = {name: gated.filter(pc.equal(gated["gate"], name))["sample_id"] for name in gates}
    if hits is not None:
        caught[compare.NAME] = match.counted(hits)
    for name, ids in caught.items():
        marks[name] = pc.is_in(scores["sample_id"], value_set=ids.combine_chunks()).to_numpy()
    return marks


def _in_order(step: StepFolder, records: Sequence[UnitRecord], name: str, left: np.ndarray) -> tuple[pa.Table, pa.Array]:
    """The rows that are left of a table of some units, by their numbers, and their places in it."""
    table = _whole(step, records, name)
    numbers = edits.numbers_of(table["position"])
    order = np.argsort(numbers, kind="stable")
    found = np.searchsorted(left, numbers[order])  # left is ascending
    is_left = np.append(left, -1)[found] == numbers[order]
    places = pa.array(order[is_left], pa.int64())
    return table.take(places), places


def _whole(step: StepFolder, records: Sequence[UnitRecord], name: str) -> pa.Table:
    return step.read_table(name, [record.parts[name] for record in records])
