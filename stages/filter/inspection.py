"""Inspection, the first phase of the filter: every edit is decoded once on CPU workers and measured, then the gates decide what is scored.

In: slices of delivered edits. Out: the artifact ``inspected`` (one row per readable edit: ids, sizes, hashes, the gates' measures),
``gated`` (which gate caught which edit), the quarantine of what cannot be read or is a duplicate, and the rows that are left for
scoring. The unit of resume is a slice, named without any threshold: with another threshold the gates decide again from the table, and
nothing is inspected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from reward.inputs.decoding import DECODER
from reward.likeness import perceptual_hash
from stages.datasets import readers as edits
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import Job
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Done, Unit, UnitOutput, UnitRecord, Work, publish_table
from stages.filter import decide as gates
from stages.filter.config import FilterConfig
from stages.filter.decide import INSPECTED
from stages.filter.gates.config import GatesConfig
from stages.filter.pair import Pair, Picture
from stages.filter.selection.order import rank_within

REVISION = 2
"""Raised when a fixed column of ``inspected`` changes, so that edits are inspected again; gates have revisions of their own."""
DUPLICATE = "duplicate"


@dataclass(frozen=True)
class Inspection:
    """``numbers``: of the rows that are to be scored, ascending, int64 [n], and their ``sample_ids``; ``artifacts``: tables in parts; the
    counts of the other rows."""

    numbers: np.ndarray
    sample_ids: pa.ChunkedArray
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


def left_in(step: StepFolder, record: UnitRecord, config: GatesConfig, matching: Callable[[pa.Table], np.ndarray] | None) -> np.ndarray:
    """Numbers of the rows of an inspected unit that are left as far as that can be seen in this unit: int64 [n], ascending.

    What no gate drops that judges a row by itself, is not found in the references (``matching``: bool [rows]), and does not occur before in
    the unit. It is the same whenever and beside whatever the unit is done.
    """
    table = step.read_table("inspected", [record.parts["inspected"]], INSPECTED.names, INSPECTED)
    left = ~(later_ones(table["sample_id"]) | gates.decide_rows(table, config))
    if matching is not None:
        left &= ~matching(table)
    return edits.numbers_of(table["position"].filter(pa.array(left)))


def decide(config: FilterConfig, step: StepFolder, done: Done) -> Inspection:
    """Decide on all inspected edits: which are left for scoring."""
    artifacts = done.artifacts()
    columns = [name for name in INSPECTED.names if name != "edited_sha256"]  # neither a gate nor the search for duplicates reads it
    inspected = step.read_table("inspected", [record.parts["inspected"] for record in done.records], columns, INSPECTED)
    copies, repeated = duplicates(inspected)
    single = inspected.filter(pa.array(~repeated)) if copies else inspected
    decided = gates.decide(single, config.gates)
    artifacts["quarantine"] += publish_table(step, "quarantine", contracts.table("quarantine", [asdict(row) for row in copies]))
    artifacts["gated"] = publish_table(step, "gated", decided.table)
    left = single.select(["position", "sample_id"]).filter(pa.array(~decided.dropped))
    numbers = edits.numbers_of(left["position"])
    quarantined = Counter(done.quarantined()) + Counter(row.reason for row in copies)
    return Inspection(
        numbers=numbers,
        sample_ids=left["sample_id"],
        artifacts=artifacts,
        rows_in=done.counts()["in"],
        quarantined=dict(sorted(quarantined.items())),
        gated=int(decided.dropped.sum()),
        summary=decided.summary,
    )


def unit_key(piece: edits.Slice) -> str:
    """Name of an inspected slice."""
    return settings_hash("inspect", REVISION, DECODER, piece.fingerprint, *gates.LATER)


def make_work() -> Work:
    """The work of one slice: a row of the contract ``inspected`` per readable edit."""

    def work(piece: edits.Slice) -> UnitOutput:
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
        return UnitOutput({"inspected": contracts.table("inspected", rows, INSPECTED)}, len(piece.rows), len(rows), quarantine)

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


def duplicates(inspected: pa.Table) -> tuple[list[Quarantined], np.ndarray]:
    """Edits that occur before in the table: as rows of the quarantine, and which rows they are, bool [n].

    Duplicates have the same source bytes, instruction and edited bytes, and so the same ``sample_id``, by which later steps name an edit.
    The first one by position stays. Only the driver sees the rows of all units, so it decides; the result depends neither on the number of
    workers nor on the order in which units end.
    """
    later = later_ones(inspected["sample_id"])
    copied = pc.is_in(inspected["sample_id"], value_set=inspected["sample_id"].filter(pa.array(later)).combine_chunks())
    first: dict[str, str] = {}
    for row in inspected.filter(copied).select(["sample_id", "position"]).to_pylist():
        first.setdefault(row["sample_id"], row["position"])
    message = "source, instruction and edited image are those of"
    copies = [
        Quarantined(row["row_id"], row["position"], DUPLICATE, f"{message} {first[row['sample_id']]}")
        for row in inspected.filter(pa.array(later)).select(["sample_id", "row_id", "position"]).to_pylist()
    ]
    return copies, later


def later_ones(ids: pa.ChunkedArray) -> np.ndarray:
    """Which values occurred before, bool [n]."""
    return rank_within(ids.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)) > 0


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


def check_unchanged(inspection: Inspection, delivered: pa.Table) -> None:
    """Raises ``ValueError`` naming a scored row (of the contract ``edits``) whose content is not what was inspected."""
    numbers = edits.numbers_of(delivered["position"])
    known = inspection.sample_ids.take(pa.array(np.searchsorted(inspection.numbers, numbers)))
    changed = np.flatnonzero(pc.not_equal(delivered["sample_id"], known).to_numpy())
    if len(changed):
        position, before = delivered["position"][changed[0]], known[changed[0]]
        raise ValueError(
            f"{position} changed since it was inspected as sample {before} (an image or the instruction is another); "
            "restore the data set, or score it in a new run directory"
        )


def rows_of(piece: edits.Slice, wanted: np.ndarray) -> edits.Slice:
    """The slice with those of its rows that have these numbers, int64 [n]."""
    first = piece.rows[0][0]
    keep = np.isin(np.arange(first, piece.rows[-1][0] + 1), wanted)
    return piece if keep.all() else replace(piece, rows=edits.kept(piece.rows, keep, first))
