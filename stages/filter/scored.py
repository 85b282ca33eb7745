"""The scores of the edits that are left, put together from units of this run and of earlier ones, with the flags of the gates.

A unit of scoring has some rows of a slice, and stays on the disk when a gate drops some of them later, or lets more pass: only rows that no
unit has are scored. The table ``scores`` that the step publishes has exactly the rows that are left, in the order of the data set, and all
that is known of them beside their scores, so that whatever reads it joins nothing. Their flags are decided here, because another threshold
must not score anything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.datasets import readers as edits
from stages.engine import unit_log
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import UnitRecord, publish_batches, publish_table
from stages.filter.inspection import Inspection, bit_of, inspected_rows
from stages.filter.schemas import INSPECTED, OF_EDITS, OF_INSPECTED, SCORED


@dataclass(frozen=True)
class Scored:
    """``artifacts``: scores and quarantine in parts; ``out``: scored rows; ``quarantined``: rows by reason; ``flags``: scored edits
    by flag; ``units``: keys of all units of these slices, also of those whose rows are not left."""

    artifacts: dict[str, list[Part]]
    out: int
    quarantined: dict[str, int]
    flags: dict[str, int]
    units: frozenset[str]


def known(step: StepFolder, families: Iterable[str]) -> dict[str, list[UnitRecord]]:
    """Finished units by the slice that they are of."""
    found: dict[str, list[UnitRecord]] = {family: [] for family in families}
    for record in unit_log.sound(step).values():
        if record.family in found and unit_log.is_whole(step, record):
            found[record.family].append(record)
    return found


def rows_in(step: StepFolder, records: Sequence[UnitRecord]) -> np.ndarray:
    """Numbers of the rows that units have scored or set aside, int64 [n]."""
    tables = [step.read_table(name, [record.parts[name] for record in records], ["position"]) for name in ("edits", "quarantine")]
    return np.concatenate([np.zeros(0, np.int64), *(edits.numbers_of(table["position"]) for table in tables)])


def assemble(step: StepFolder, slices: Sequence[Sequence[UnitRecord]], inspected: Inspection, flags: Sequence[str]) -> Scored:
    """The rows that are ``inspected.left`` of the units of all slices, in the order of the data set, a slice at a time.

    flags: those of ``inspection.MARKS`` that edits can have here. Raises ``ValueError`` for a row whose content changed since then.
    """
    quarantine: list[Part] = []
    reasons, given, counts = Counter[str](), dict[str, None](), Counter[str]()

    def scores() -> Iterator[pa.RecordBatch]:
        for records, seen in zip(slices, inspected.parts, strict=True):
            delivered, places = _in_order(step, records, "edits", inspected.left)
            known = inspected_rows(step.read_table("inspected", [seen], INSPECTED.names, INSPECTED), delivered)
            aside, _ = _in_order(step, records, "quarantine", inspected.left)
            quarantine.extend(publish_table(step, "quarantine", aside))
            reasons.update(aside["reason"].to_pylist())
            found = _whole(step, records, "scores").take(places)
            assert found["sample_id"].equals(delivered["sample_id"]), "edits and scores have the same rows"
            own = pc.unique(pc.list_flatten(found["flags"])).to_pylist()
            numbers = edits.numbers_of(delivered["position"])
            bits = inspected.marks[numbers]
            marks = {name: _has(found["flags"], name) for name in own}
            marks |= {name: (bits & bit_of(name) != 0) | marks.get(name, False) for name in flags}
            given.update(dict.fromkeys(own))
            counts.update({name: int(has.sum()) for name, has in marks.items()})
            paths = (pc.struct_field(delivered[name], "path") for name in ("source", "edited"))
            beside = [numbers, *paths, *delivered.select(OF_EDITS).columns, *known.select(OF_INSPECTED).columns]
            yield from pa.table([*with_flags(found, marks).columns, *beside], schema=SCORED).combine_chunks().to_batches()

    parts = {"scores": publish_batches(step, "scores", scores()), "quarantine": quarantine}
    units = frozenset(record.key for records in slices for record in records)
    out = sum(part.rows for part in parts["scores"])
    return Scored(parts, out, dict(sorted(reasons.items())), {name: counts[name] for name in [*given, *flags]}, units)


def with_flags(scores: pa.Table, marks: Mapping[str, np.ndarray]) -> pa.Table:
    """The scores with the names of the ``marks``, bool [n] each, in the column ``flags``."""
    table = np.stack([*marks.values()], axis=1) if marks else np.zeros((scores.num_rows, 0), bool)
    names = pa.array([*marks], pa.string()).take(pa.array(np.nonzero(table)[1]))
    ends = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
    flags = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names)
    return scores.set_column(scores.schema.get_field_index("flags"), scores.schema.field("flags"), flags.cast(pa.list_(pa.string())))


def _in_order(step: StepFolder, records: Sequence[UnitRecord], name: str, left: np.ndarray) -> tuple[pa.Table, pa.Array]:
    """The rows that are left of a table of some units, by their numbers, and their places in it."""
    table = _whole(step, records, name)
    numbers = edits.numbers_of(table["position"])
    order = np.argsort(numbers, kind="stable")
    places = pa.array(order[left[numbers[order]]], pa.int64())
    return table.take(places), places


def _whole(step: StepFolder, records: Sequence[UnitRecord], name: str) -> pa.Table:
    return step.read_table(name, [record.parts[name] for record in records])


def _has(flags: pa.ChunkedArray, name: str) -> np.ndarray:
    """Which rows have a flag, bool [n]; ``flags``: lists of names."""
    lists = flags.combine_chunks()
    found = np.zeros(len(lists), bool)
    found[pc.list_parent_indices(lists).filter(pc.equal(pc.list_flatten(lists), name)).to_numpy()] = True
    return found
