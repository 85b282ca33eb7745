"""Inspection, the first phase of the filter: every edit is decoded once on CPU workers and measured, then the gates decide what is scored.

In: slices of delivered edits. Out: the artifact ``inspected`` (one row per readable edit: ids, sizes, hashes, the gates' measures),
``gated`` (which gate caught which edit), the quarantine of what cannot be read or is a duplicate, and the rows that are left for
scoring. The unit of resume is a slice, named without any threshold: with another threshold the gates decide again from the table, and
nothing is inspected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from reward.inputs.decoding import DECODER
from reward.likeness import perceptual_hash
from stages.contamination import compare, match
from stages.contamination.config import Comparison
from stages.datasets import readers as edits
from stages.datasets.io.locations import Sizes
from stages.datasets.seen import seen
from stages.engine import contracts, tables
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import Job
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import Tables
from stages.engine.units import Done, Unit, UnitOutput, UnitRecord, Work, publish_batches
from stages.filter import decide as gates
from stages.filter.config import FilterConfig
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.pair import Pair, Picture
from stages.filter.schemas import INSPECTED

REVISION = 2
"""Raised when a fixed column of ``inspected`` changes, so that edits are inspected again; gates have revisions of their own."""
DUPLICATE = "duplicate"
MARKS = (*GATES, compare.NAME)
"""Flags that an inspected edit can have: gates that caught it, and contamination."""


@dataclass(frozen=True)
class Inspection:
    """By the number of a row of the data set: ``left``, whether it is to be scored, bool, and ``marks``, its flags, a bit of uint32 each.
    ``parts``: of ``inspected``, one per slice; ``artifacts``: tables in parts; the counts of the other rows."""

    left: np.ndarray
    marks: np.ndarray
    parts: list[Part]
    artifacts: dict[str, list[Part]]
    rows_in: int
    quarantined: dict[str, int]
    gated: int
    summary: dict[str, dict[str, Any]]

    def dropped(self) -> dict[str, int]:
        """Edits that are not scored because of a gate, by gate."""
        return {name: entry["dropped"] for name, entry in self.summary.items() if entry.get("dropped")}


def job(slices: Sequence[edits.Slice], *, workers: int) -> Job:
    """The inspection of slices."""
    return Job([Unit(unit_key(piece), piece, len(piece.rows)) for piece in slices], make_work, workers, phase="inspect")


def left_in(
    database: Tables, step: StepFolder, record: UnitRecord, config: GatesConfig, contamination: Comparison | None = None
) -> np.ndarray:
    """Numbers of the rows of an inspected unit that are left as far as that can be seen in this unit: int64 [n], ascending.

    What no gate drops that judges a row by itself, is not found in the references (the table ``items``, where ``contamination`` drops), and
    does not occur before in the unit. It is the same whenever and beside whatever the unit is done.
    """
    database.view("inspected", [step.path / record.parts["inspected"].path], INSPECTED)
    columns = [f"{gates.NUMBER} AS {tables.PLACE}", *match.COMPARED, f"{gates.dropped_alone(config)} AS dropped"]
    database.execute(f"CREATE OR REPLACE TABLE sources AS SELECT {', '.join(columns)} FROM inspected")
    left = f"SELECT min({tables.PLACE}) AS {tables.PLACE} FROM sources GROUP BY sample_id HAVING NOT arg_min(dropped, {tables.PLACE})"
    if contamination is not None:
        match.find(database, contamination.distance, contamination.counts)
        left = f"FROM ({left}) ANTI JOIN (FROM hits WHERE counted) USING ({tables.PLACE})"
    return database.table(f"{left} ORDER BY {tables.PLACE}")[tables.PLACE].to_numpy()


def decide(config: FilterConfig, step: StepFolder, slices: Sequence[edits.Slice], done: Done) -> Inspection:
    """Decide on all inspected edits: which are left for scoring."""
    artifacts = done.artifacts()
    parts = [record.parts["inspected"] for record in done.records]
    with tables.opened(step.path) as database:
        database.view("inspected", [step.path / part.path for part in parts], INSPECTED)
        gates.read(database, config.gates)
        find_copies(database)
        artifacts["quarantine"] += publish_batches(step, "quarantine", quarantined_copies(database))
        summary = gates.decide(database, config.gates)
        artifacts["gated"] = publish_batches(step, "gated", gates.gated(database, config.gates))
        repeated = database.number("SELECT count(*) FROM copies")
        left, marks = fates(database, max((piece.rows[-1][0] + 1 for piece in slices if piece.rows), default=0))
    return Inspection(
        left=left,
        marks=marks,
        parts=parts,
        artifacts=artifacts,
        rows_in=done.counts()["in"],
        quarantined=dict(sorted((Counter(done.quarantined()) + Counter({DUPLICATE: repeated})).items())),
        gated=sum(entry.get("dropped", 0) for entry in summary.values()),
        summary=summary,
    )


def unit_key(piece: edits.Slice) -> str:
    """Name of an inspected slice."""
    return settings_hash("inspect", REVISION, DECODER, piece.fingerprint, *gates.REVISIONS)


def make_work() -> Work:
    """The work of one slice: a row of the contract ``inspected`` per readable edit."""

    sizes = Sizes()

    def work(piece: edits.Slice) -> UnitOutput:
        found_now = seen(piece, sizes)  # before they are read: what changes in between is new work the next time
        rows: list[dict[str, Any]] = []
        quarantine: list[Quarantined] = []
        pair: Pair | None = None
        for entry in edits.fetch(piece):
            found = entry if isinstance(entry, Quarantined) else pair_of(entry, pair)
            if isinstance(found, Quarantined):
                quarantine.append(found)
            else:
                pair = found
                rows.append(row_of(pair))
        inspected = contracts.table("inspected", rows, INSPECTED)
        return UnitOutput({"inspected": inspected}, len(piece.rows), len(rows), quarantine, seen=found_now)

    return work


def pair_of(edit: edits.Edit, before: Pair | None = None) -> Pair | Quarantined:
    """An edit with its pictures, or why they cannot be read. ``before``: another edit, which may have the same source."""
    source = before.source if before is not None and before.edit.source_sha256 == edit.source_sha256 else None
    opened = edits.opened(edit, whole=True, source=source.image if source else None)
    return opened if isinstance(opened, Quarantined) else Pair(edit, source or Picture(opened[0]), Picture(opened[1]))


def row_of(pair: Pair) -> dict[str, Any]:
    """A row of the contract ``inspected``."""
    edit, source, edited = pair.edit, pair.source.image, pair.edited.image
    difference = np.abs(pair.small_source - pair.small_edited).astype(np.uint8)
    return {
        "sample_id": edit.sample_id,
        "row_id": edit.row_id,
        "position": edit.position,
        "source_width": source.width,
        "source_height": source.height,
        "edited_width": edited.width,
        "edited_height": edited.height,
        "source_sha256": edit.source_sha256,
        "edited_sha256": edit.edited_sha256,
        "source_phash": pair.source.bits,
        "edited_phash": pair.edited.bits,
        "change_phash": perceptual_hash(Image.fromarray(difference)),
        "instruction": pair.words,
        **gates.measure(pair),
    }


def find_copies(database: Tables) -> None:
    """Keep as the table ``copies`` those of the table ``edits`` that occur before in it, and which edit they are a copy of, ``first``.

    Duplicates have the same source bytes, instruction and edited bytes, and so the same ``sample_id``, by which later steps name an edit.
    The first one by position stays. Only the driver sees the rows of all units, so it decides; the result depends neither on the number of
    workers nor on the order in which units end.
    """
    firsts = "SELECT sample_id, min(number) AS first FROM edits GROUP BY sample_id HAVING count(*) > 1"
    again = f"SELECT number, first FROM edits JOIN ({firsts}) USING (sample_id) WHERE number > first"
    database.execute(f"CREATE OR REPLACE TABLE copies AS {again}")


def quarantined_copies(database: Tables) -> Iterator[pa.RecordBatch]:
    """The table ``copies`` as rows of the quarantine."""
    message = "'source, instruction and edited image are those of ' || known.position"
    rows = f"SELECT copy.row_id, copy.position, '{DUPLICATE}' AS reason, {message} AS message FROM copies"
    joins = "JOIN edits AS copy ON copy.number = copies.number JOIN edits AS known ON known.number = first"
    for batch in database.rows(f"{rows} {joins} ORDER BY copies.number"):
        yield batch.cast(contracts.QUARANTINE)


def fates(database: Tables, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """``left`` and ``marks`` of an :class:`Inspection` of as many rows, after the gates decided."""
    left, marks = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=np.uint32)
    for batch in database.rows("SELECT number FROM edits ANTI JOIN gone USING (number)"):
        left[batch["number"].to_numpy()] = True
    for batch in database.rows("SELECT number, gate FROM caught"):
        np.bitwise_or.at(marks, batch["number"].to_numpy(), np.uint32(1) << batch["gate"].to_numpy().astype(np.uint32))
    return left, marks


def bit_of(flag: str) -> np.uint32:
    """The bit of a flag in ``Inspection.marks``."""
    assert len(MARKS) <= 32, "a flag is a bit of uint32"
    return np.uint32(1) << np.uint32(MARKS.index(flag))


def balance(inspection: Inspection, out: int, quarantined: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Counts of the whole step, and quarantined rows by reason: in = out + quarantined + gated.

    out, quarantined: rows that were scored, and that could not be, by reason.
    """
    reasons = Counter(inspection.quarantined) + Counter(quarantined)
    counts = {"in": inspection.rows_in, "out": out, "quarantined": sum(reasons.values()), "gated": inspection.gated}
    assert counts["in"] == counts["out"] + counts["quarantined"] + counts["gated"], f"the filter does not balance: {counts}"
    return counts, dict(sorted(reasons.items()))


def merge(first: dict[str, list[Part]], second: dict[str, list[Part]]) -> dict[str, list[Part]]:
    """Parts per artifact of two phases; both have a quarantine."""
    return {name: first.get(name, []) + second.get(name, []) for name in [*first, *(name for name in second if name not in first)]}


def inspected_rows(inspected: pa.Table, delivered: pa.Table) -> pa.Table:
    """The inspected rows of the scored rows of a slice (of the contract ``edits``), in their order.

    Raises ``ValueError`` naming a row whose content is not what was inspected."""
    known = inspected.take(pc.index_in(delivered["position"], value_set=inspected["position"].combine_chunks()))
    changed = np.flatnonzero(pc.not_equal(delivered["sample_id"], known["sample_id"]).to_numpy())
    if len(changed):
        position, before = delivered["position"][changed[0]], known["sample_id"][changed[0]]
        raise ValueError(
            f"{position} changed since it was inspected as sample {before} (an image or the instruction is another); "
            "restore the data set, or score it in a new run directory"
        )
    return known


def rows_of(piece: edits.Slice, wanted: np.ndarray) -> edits.Slice:
    """The slice with those of its rows that have these numbers, int64 [n]."""
    first = piece.rows[0][0]
    keep = np.isin(np.arange(first, piece.rows[-1][0] + 1), wanted)
    return piece if keep.all() else replace(piece, rows=edits.kept(piece.rows, keep, first))
