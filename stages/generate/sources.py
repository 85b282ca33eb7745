"""The sources: slices of a data set in, the table ``sources`` and the quarantine out.

Two phases, each resumable. Workers read the slices and hash the images. Then the driver, which has ids and hashes but no images, sets
repeated sources aside and puts near duplicates into one split group (:mod:`stages.generate.split`). Workers read the rows that are left a
second time and write them; their ids are compared, so a data set that changed in between is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from reward.inputs.decoding import DECODER, decode
from reward.likeness import perceptual_hash
from stages.context import Context
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE, TableSources
from stages.datasets.slices import Edit, Slice
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Done, Unit, UnitOutput, Work, publish_table
from stages.generate import split
from stages.generate.config import GenerateConfig
from stages.generate.rows import image_group, source_id, source_row

LEAST_SIDE = 16
"""Pixels. Smaller images have no content that an editor or a rater could judge."""
MOST_CHARACTERS = 2000
"""Of an instruction: editors read 512 tokens, and cut off the rest without a word."""


@dataclass(frozen=True)
class Task:
    """Rows to write. ``names``: the id of each. ``split_groups``: of the sources of which there are near duplicates."""

    piece: Slice
    names: tuple[str, ...]
    split_groups: dict[str, str]
    validation_share: float


@dataclass(frozen=True)
class Plan:
    """The units that write, the rows that repeat a source, and counts of images (:func:`stages.generate.split.groups_of`)."""

    writing: list[Unit]
    repeated: list[Quarantined]
    near_duplicates: dict[str, int]


@dataclass(frozen=True)
class Sources:
    """What became of the rows. ``near_duplicates`` as in :class:`Plan`. ``keep``: keys of units that a later run may use."""

    artifacts: dict[str, list[Part]]
    counts: dict[str, int]
    quarantined: dict[str, int]
    near_duplicates: dict[str, int]
    keep: set[str]


def make_sources(context: Context, folder: StepFolder, config: GenerateConfig, pieces: Sequence[Slice]) -> Sources:
    """The sources of all slices. Raises ``ValueError`` when rows are listed twice, or none can be used."""
    assert config.sources is not None, "candidates made here have sources"
    reading = [Unit(unit_key(piece), piece, len(piece.rows)) for piece in pieces]
    (twice, times), *_ = Counter(unit.key for unit in reading).most_common(1)
    if times > 1:
        location = next(unit.payload.location for unit in reading if unit.key == twice)
        raise ValueError(f"generate.sources: the same rows of {location} are listed {times} times; name each table once")
    run = partial(run_units, folder, cluster=context.cluster, workers=config.workers or 2, rows_are="sources")
    read: Done = run(reading, make_reading, phase="read sources")
    rows = [folder.read_table("source_rows", [record.parts["source_rows"]]).to_pylist() for record in read.records]
    plan = decide(reading, rows, config)
    quarantined = Counter(read.quarantined()) + Counter(row.reason for row in plan.repeated)
    if not plan.writing:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(quarantined.items()))
        example = folder.read_table("quarantine", read.artifacts()["quarantine"]).to_pylist()[0]
        raise ValueError(f"generate.sources: no row can be used ({reasons}); e.g. {example['position']}: {example['message']}")
    written: Done = run(plan.writing, make_writing, phase="sources")
    aside = publish_table(folder, "quarantine", contracts.table("quarantine", [asdict(row) for row in plan.repeated]))
    artifacts = written.artifacts() | {"quarantine": [*read.artifacts().get("quarantine", []), *aside]}
    counts = {"in": read.counts()["in"], "out": written.counts()["out"], "quarantined": quarantined.total()}
    assert counts["in"] == counts["out"] + counts["quarantined"], f"sources do not balance: {counts}"
    return Sources(artifacts, counts, dict(sorted(quarantined.items())), plan.near_duplicates, {unit.key for unit in reading})


def decide(reading: Sequence[Unit], rows: Sequence[Sequence[Mapping[str, Any]]], config: GenerateConfig) -> Plan:
    """What is written of the slices that were read. ``rows``: of the contract ``source_rows``, per slice."""
    assert config.sources is not None
    repeated = duplicates(rows)
    left = [[row for row in of_slice if (number, row["row"]) not in repeated] for number, of_slice in enumerate(rows)]
    table = contracts.table("source_rows", [dict(row) for of_slice in left for row in of_slice])
    drawn = all(readers.domain_of(name) == "toy" for name in set(table["dataset"].to_pylist()))
    distance = None if drawn else config.split_distance  # drawings of few flat areas have near hashes
    merged, near = split.groups_of(table, set(table["source_id"].to_pylist()), distance)
    share = config.sources.validation_share if isinstance(config.sources, TableSources) else VALIDATION_SHARE
    writing = [_unit(unit, of_slice, merged, share) for unit, of_slice in zip(reading, left, strict=True) if of_slice]
    return Plan(writing, [*repeated.values()], near)


def unit_key(piece: Slice) -> str:
    """Name of a slice that is read. A fingerprint is of the text of the rows: where their images are comes on top.

    A reader that states the content of its rows does not need it.
    """
    beside = () if piece.content is not None else (piece.location, piece.images)
    return settings_hash("read sources", DECODER, piece.fingerprint, *beside)


def make_reading() -> Work:
    """The work of a slice that is read: ids and hashes of its rows, all of which can be decoded and edited."""

    def work(piece: Slice) -> UnitOutput:
        rows, quarantine = [], []
        for (number, _), entry in zip(piece.rows, readers.load(piece), strict=True):
            found = entry if isinstance(entry, Quarantined) else _hashed(number, entry)
            (quarantine if isinstance(found, Quarantined) else rows).append(found)
        tables = {"source_rows": contracts.table("source_rows", rows)}
        return UnitOutput(tables, rows_in=len(piece.rows), rows_out=len(rows), quarantine=quarantine)

    return work


def _hashed(number: int, entry: Edit) -> dict[str, Any] | Quarantined:
    """Row of the contract ``source_rows``, or why no editor gets this source."""
    image = decode(entry.source)
    if min(image.size) < LEAST_SIDE:
        message = f"the source image has {image.width} x {image.height} pixels; at least {LEAST_SIDE} on each side are needed"
        return Quarantined(entry.row_id, entry.position, "too-small", message)
    if len(entry.instruction) > MOST_CHARACTERS:
        message = f"the instruction has {len(entry.instruction):,} characters; editors read at most about {MOST_CHARACTERS:,}"
        return Quarantined(entry.row_id, entry.position, "too-long", message)
    return {
        "row": number,
        "row_id": entry.row_id,
        "dataset": entry.dataset,
        "position": entry.position,
        "source_id": source_id(entry),
        "group": image_group(entry),
        "source_phash": perceptual_hash(image),
        "split": entry.split,
    }


def duplicates(slices: Sequence[Sequence[Mapping[str, Any]]]) -> dict[tuple[int, int], Quarantined]:
    """The rows whose image and instruction an earlier row has, by numbers of slice and row: their candidates would have the same ids."""
    first: dict[str, Mapping[str, Any]] = {}
    found = {}
    for number, rows in enumerate(slices):
        for row in rows:
            earlier = first.setdefault(row["source_id"], row)
            if earlier is not row:
                message = f"image and instruction are those of {earlier['position']} of {earlier['dataset']}"
                found[number, row["row"]] = Quarantined(row["row_id"], row["position"], "duplicate", message)
    return found


def make_writing() -> Work:
    """The work of a slice that is written: its sources."""

    def work(task: Task) -> UnitOutput:
        rows = []
        for name, entry in zip(task.names, readers.fetch(task.piece), strict=True):
            if isinstance(entry, Quarantined) or source_id(entry) != name:
                now = entry.message if isinstance(entry, Quarantined) else "its image or its instruction is another"
                raise ValueError(f"{entry.position} changed since it was read ({now}); restore the data set, or use a new run directory")
            rows.append(source_row(entry, task.validation_share, task.split_groups.get(name)))
        return UnitOutput({"sources": contracts.table("sources", rows)}, rows_in=len(rows), rows_out=len(rows))

    return work


def _unit(read: Unit, rows: Sequence[Mapping[str, Any]], merged: Mapping[str, str], share: float) -> Unit:
    names = tuple(row["source_id"] for row in rows)
    numbers = {row["row"] for row in rows}
    piece = replace(read.payload, rows=[row for row in read.payload.rows if row[0] in numbers])
    groups = {name: merged[name] for name in names if name in merged}
    return Unit(settings_hash("sources", read.key, names, groups, share), Task(piece, names, groups, share), len(rows))
