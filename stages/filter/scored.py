"""The scores of the edits that are left, put together from units of this run and of earlier ones, with the flags of the gates.

A unit of scoring has some rows of a slice, and stays on the disk when a gate drops some of them later, or lets more pass: only rows that no
unit has are scored. The tables ``edits`` and ``scores`` that the step publishes have exactly the rows that are left, in the order of the
data set. Their flags are decided here, because another threshold must not score anything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import compare
from stages.datasets import readers as edits
from stages.engine import contracts, storage, tables, unit_log
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import Tables
from stages.engine.units import PART_ROWS, UnitRecord, publish_table
from stages.filter.inspection import Inspection, check_unchanged
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
    step: StepFolder, slices: Sequence[Sequence[UnitRecord]], inspected: Inspection, gates: Sequence[str], *, compared: bool
) -> Scored:
    """The rows that are ``inspected.left`` of the units of all slices, in the order of the data set, a slice at a time.

    gates: names of those that apply. compared: whether there was anything to compare with; where there was not, no edit gets the flag of
    it, so that nobody takes edits for compared. Raises ``ValueError`` for a row whose content changed since it was inspected.
    """
    parts: dict[str, list[Part]] = {"edits": [], "scores": [], "quarantine": []}
    reasons, given = Counter[str](), dict[str, None]()
    for records, seen in zip(slices, inspected.parts, strict=True):
        delivered, order = _in_order(step, records, "edits", inspected.left)
        check_unchanged(step.read_table("inspected", [seen], ["sample_id", "position"]), delivered)
        parts["edits"] += publish_table(step, "edits", delivered)
        given |= dict.fromkeys(pc.unique(pc.list_flatten(_whole(step, records, "scores", ["flags"])["flags"].take(order))).to_pylist())
        aside, _ = _in_order(step, records, "quarantine", inspected.left)
        parts["quarantine"] += publish_table(step, "quarantine", aside)
        reasons.update(aside["reason"].to_pylist())
    flags = dict.fromkeys([*given, *gates, *([compare.NAME] if compared else [])], 0)
    with tables.opened(step.path) as database:
        _find_marks(step, database, parts["edits"], inspected, {*gates, *([compare.NAME] if compared else [])})
        first = 0
        for scores in storage.even(_scores(step, slices, inspected.left), PART_ROWS):
            marks = {name: has_any(scores["flags"], [name]) for name in flags}
            here = (first, first, first + len(scores) - 1)
            marked = database.table("SELECT place - ? AS place, flag FROM marks WHERE place BETWEEN ? AND ?", here)
            for name in flags:
                marks[name][marked["place"].filter(pc.equal(marked["flag"], name)).to_numpy()] = True
                flags[name] += int(marks[name].sum())
            parts["scores"] += publish_table(step, "scores", with_flags(scores, marks))
            first += len(scores)
    units = frozenset(record.key for records in slices for record in records)
    return Scored(parts, first, dict(sorted(reasons.items())), flags, units)


def with_flags(scores: pa.Table, marks: Mapping[str, np.ndarray]) -> pa.Table:
    """The scores with the names of the ``marks``, bool [n] each, in the column ``flags``."""
    table = np.stack([*marks.values()], axis=1) if marks else np.zeros((scores.num_rows, 0), bool)
    names = pa.array([*marks], pa.string()).take(pa.array(np.nonzero(table)[1]))
    ends = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
    flags = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names)
    return scores.set_column(scores.schema.get_field_index("flags"), scores.schema.field("flags"), flags.cast(pa.list_(pa.string())))


def _find_marks(step: StepFolder, database: Tables, delivered: Sequence[Part], inspected: Inspection, flags: Collection[str]) -> None:
    """Keep the table ``marks``: the place of a scored edit, and a flag that it has by a gate or by contamination."""

    def batches(name: str, parts: Sequence[Part], columns: Sequence[str], *, place: bool = False) -> None:
        schema = pa.schema([contracts.SCHEMAS[name].field(column) for column in columns])
        rows = tables.batches([step.path / part.path for part in parts], schema, place=place)
        database.keep(name, rows, tables.with_place(schema) if place else schema)

    batches("edits", delivered, ["sample_id"], place=True)
    batches("gated", inspected.artifacts["gated"], ["sample_id", "gate"])
    batches(compare.NAME, inspected.artifacts[compare.NAME], ["sample_id", "counted"])
    hits = f"SELECT DISTINCT sample_id, '{compare.NAME}' AS flag FROM {compare.NAME} WHERE counted"
    database.execute(
        "CREATE TABLE marks AS SELECT place, flag FROM edits "
        f"JOIN (SELECT sample_id, gate AS flag FROM gated UNION ALL {hits}) USING (sample_id) WHERE list_contains(?, flag) ORDER BY place",
        [[*flags]],
    )


def _scores(step: StepFolder, slices: Sequence[Sequence[UnitRecord]], left: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The scores of the rows that are left, in their order."""
    for records in slices:
        known, order = _in_order(step, records, "edits", left, ["position", "sample_id"])
        scores = _whole(step, records, "scores").take(order).combine_chunks()
        assert scores["sample_id"].equals(known["sample_id"]), "edits and scores have the same rows"
        yield from scores.to_batches()


def _in_order(
    step: StepFolder, records: Sequence[UnitRecord], name: str, left: np.ndarray, columns: Sequence[str] | None = None
) -> tuple[pa.Table, pa.Array]:
    """The rows that are left of a table of some units, by their numbers, and their places in it."""
    table = _whole(step, records, name, columns)
    numbers = edits.numbers_of(table["position"])
    order = np.argsort(numbers, kind="stable")
    places = pa.array(order[left[numbers[order]]], pa.int64())
    return table.take(places), places


def _whole(step: StepFolder, records: Sequence[UnitRecord], name: str, columns: Sequence[str] | None = None) -> pa.Table:
    return step.read_table(name, [record.parts[name] for record in records], columns)
