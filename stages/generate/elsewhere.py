"""Candidates made elsewhere: the edits of a data set become sources and candidates, as if editors had made them here.

In: a data set (:mod:`stages.datasets.readers`) whose rows name the editor of each edit. Out: ``sources`` and ``candidates`` as with
editors, ``delivered`` (every readable edit: ids, editor, seed) and the quarantine. Edits in = candidates + quarantined, always.

Two phases, each resumable. A slice of rows is the unit of reading (:mod:`stages.generate.reading`). Then the driver, which has ids and
hashes but no images, groups the edits by source image and instruction, decides which can be used (:func:`decide`), and in which split
(:mod:`stages.generate.split`). Some sources with all their candidates are the unit of writing: a worker reads their rows again and compares
the ids, so a data set that changed in between is an error. Neither the number of workers nor the order in which units end changes a byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from reward.inputs.decoding import DECODER
from stages.context import Context
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE, CandidatesInput
from stages.datasets.seen import as_they_are
from stages.datasets.slices import Edit, Slice
from stages.engine import contracts, images, steps
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Index
from stages.engine.units import Unit, UnitOutput, Work, publish_table
from stages.generate import draw, split
from stages.generate.config import GenerateConfig
from stages.generate.reading import DeliveredEdit, make_reading
from stages.generate.rows import source_id, source_row

KEY = "generate.candidates"
UNIT_BYTES = 256 << 20
"""Encoded images of a unit of writing, all in memory together; one source with more is a unit of its own."""


@dataclass(frozen=True)
class Task:
    """A unit of writing: rows of whole groups by number, and ``sample_id``, editor and seed of each. ``split_groups``: of the sources of
    which the data set has near duplicates, by source id."""

    piece: Slice
    edits: list[tuple[str, str, int]]
    split_groups: dict[str, str]


def run(context: Context, config: GenerateConfig, delivered: CandidatesInput) -> Index:
    """Make or complete the step; returns its index. Raises ``ValueError`` when no two edits can be compared."""
    seed = context.flow.seed
    settings = {"generate": config.model_dump(mode="json", include={"candidates", "annotate", "split_distance"}), "seed": seed}
    folder, workers = context.run.step(steps.GENERATE), config.workers or 2
    planned = readers.plan(delivered, seed=seed, world=context.flow.world, unit_rows=config.unit_sources, key=KEY)
    slices = as_they_are(folder, planned, unit_key)
    inputs = {"candidates": settings_hash([piece.fingerprint for piece in slices])}
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    reading = [Unit(unit_key(piece), piece, len(piece.rows)) for piece in slices]
    read = run_units(folder, reading, make_reading, cluster=context.cluster, workers=workers, phase="read", rows_are="edits")
    artifacts = read.artifacts()
    delivered_edits = folder.read_table("delivered", artifacts["delivered"])
    groups, unusable = decide(_rows(delivered_edits))
    reasons = Counter(read.quarantined()) + Counter(row.reason for row in unusable)
    if not groups:
        listed = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))
        example = f"{unusable[0].position}: {unusable[0].message}" if unusable else ""
        example = example or next(
            f"{row['position']}: {row['message']}" for row in folder.read_table("quarantine", artifacts["quarantine"]).to_pylist()
        )
        raise ValueError(f"{KEY}: no source has two candidates that can be compared ({listed}); e.g. {example}")
    split_groups, near = split.groups_of(delivered_edits, {group[0].source_id for group in groups}, config.split_distance)
    writing = list(units(groups, slices, config, split_groups))
    written = run_units(folder, writing, make_writing, cluster=context.cluster, workers=workers, phase="write", rows_are="candidates")
    artifacts |= {name: parts for name, parts in written.artifacts().items() if name != "quarantine"}
    sound = (draw.Sound(row.source_id, row.sample_id, row.editor) for group in groups for row in group)
    drawn = draw.draw(sound, config.annotate, seed)
    artifacts["drawn"] = publish_table(folder, "drawn", draw.table(drawn))
    artifacts["quarantine"] += publish_table(folder, "quarantine", contracts.table("quarantine", [asdict(row) for row in unusable]))
    counts = {"in": read.counts()["in"], "out": written.counts()["out"], "quarantined": sum(reasons.values())}
    assert counts["in"] == counts["out"] + counts["quarantined"], f"candidates do not balance: {counts}"
    sizes = [len(group) for group in groups]
    results = {
        "candidates_per_source": _span(sizes),
        "annotated_per_source": draw.per_source(drawn),
        "smaller_groups": sum(size < config.annotate for size in sizes),
        "near_duplicates": near,
    }
    return folder.publish(draft, artifacts=artifacts, counts=counts, quarantined=dict(sorted(reasons.items())), results=results)


def unit_key(piece: Slice) -> str:
    """Name of a slice that is read."""
    return settings_hash("delivered/2", DECODER, *_place(piece))


def decide(rows: Iterable[DeliveredEdit]) -> tuple[list[list[DeliveredEdit]], list[Quarantined]]:
    """The groups that can be rated, each the candidates of one source by row, in the order of their first rows; and what is set aside.

    Of equal edits, and of edits by one editor with one seed, the first stays. Edits without a seed are numbered, per source and editor,
    with the numbers that are free. A source with a single candidate is set aside: it gives nothing to compare.
    """
    unusable: list[tuple[int, Quarantined]] = []
    images_of: dict[str, DeliveredEdit] = {}
    seeds_of: dict[tuple[str, str, int], DeliveredEdit] = {}

    def set_aside(row: DeliveredEdit, reason: str, message: str) -> None:
        unusable.append((row.number, Quarantined(row.row_id, row.position, reason, message)))

    for row in rows:
        seeded = None if row.seed is None else (row.source_id, row.editor, row.seed)
        if equal := images_of.get(row.sample_id):
            set_aside(row, "duplicate", f"source, instruction and edited image are those of {equal.position}, by {equal.editor}")
        elif seeded and (other := seeds_of.get(seeded)):
            message = f"{row.editor} with seed {row.seed} has another image for this source and instruction in {other.position}"
            set_aside(row, "same-seed", f"{message}; correct the editor or the seed of one")
        else:
            images_of[row.sample_id] = row
            if seeded:
                seeds_of[seeded] = row
    groups: dict[str, list[DeliveredEdit]] = {}
    following: Counter[tuple[str, str]] = Counter()
    for row in images_of.values():
        if row.seed is None:
            by = (row.source_id, row.editor)
            while (*by, following[by]) in seeds_of:
                following[by] += 1
            row = row._replace(seed=following[by])
            following[by] += 1
        groups.setdefault(row.source_id, []).append(row)
    for group in groups.values():
        if len(group) == 1:
            message = "no other edit of this source with this instruction can be used, so there is nothing to compare"
            set_aside(group[0], "single-candidate", message)
    return [group for group in groups.values() if len(group) > 1], [entry for _, entry in sorted(unusable, key=lambda found: found[0])]


def units(
    groups: Sequence[Sequence[DeliveredEdit]], slices: Sequence[Slice], config: GenerateConfig, split_groups: Mapping[str, str]
) -> Iterator[Unit]:
    """Units of writing: ``unit_sources`` groups, or fewer with large images."""
    first = 0
    while first < len(groups):
        last, size = first, 0
        while last < min(first + config.unit_sources, len(groups)):
            size += sum(row.image_bytes for row in groups[last])
            if last > first and size > UNIT_BYTES:
                break
            last += 1
        rows = sorted((row.number, row.sample_id, row.editor, row.seed or 0) for group in groups[first:last] for row in group)
        piece = readers.pick(slices, [number for number, *_ in rows])
        names = [group[0].source_id for group in groups[first:last]]
        merged = {name: split_groups[name] for name in names if name in split_groups}
        task = Task(piece, [(sample_id, editor, number) for _, sample_id, editor, number in rows], merged)
        yield Unit(settings_hash("candidates/2", *_place(piece), task.edits, merged), task, len(rows))
        first = last


def make_writing() -> Work:
    """The work of a unit of writing: its sources and candidates, the sources by their first rows."""

    def work(task: Task) -> UnitOutput:
        sources: dict[str, dict[str, Any]] = {}
        candidates: dict[str, list[dict[str, Any]]] = {}
        known = readers.fetch_known(task.piece, [sample_id for sample_id, *_ in task.edits])
        for (sample_id, editor, number), edit in zip(task.edits, known, strict=True):
            name = source_id(edit)
            if name not in sources:
                origin = json.dumps({"licence": edit.licence, "position": edit.position}, ensure_ascii=False)
                sources[name] = source_row(edit, VALIDATION_SHARE, task.split_groups.get(name)) | {"metadata": origin}
            candidates.setdefault(name, []).append(_candidate(edit, sample_id, name, editor, number))
        rows = [row for of_source in candidates.values() for row in of_source]
        tables = {"sources": contracts.table("sources", [*sources.values()]), "candidates": contracts.table("candidates", rows)}
        return UnitOutput(tables, rows_in=len(task.edits), rows_out=len(rows))

    return work


def _candidate(edit: Edit, sample_id: str, source: str, editor: str, seed: int) -> dict[str, Any]:
    """Row of the ``candidates`` contract. Its id is the edit's; an editor elsewhere has no revision and no settings that are known here."""
    origin = {"licence": edit.licence, "position": edit.position, "row": json.loads(edit.metadata)}
    return contracts.candidate(
        candidate_id=sample_id,
        source_id=source,
        editor=editor,
        seed=seed,
        image=images.stored(edit.edited, edit.edited_path),
        licence=edit.licence,
        metadata=json.dumps(origin, sort_keys=True, ensure_ascii=False),
    )


def _place(piece: Slice) -> tuple[Any, str, str]:
    """What a unit's key must know of a slice: its rows, and where they and their images are, since a fingerprint is of the rows' text."""
    return piece.fingerprint, piece.location, piece.images


def _rows(delivered: pa.Table) -> Iterator[DeliveredEdit]:
    numbers = readers.numbers_of(delivered["position"]).tolist()
    columns = (delivered[name].to_pylist() for name in DeliveredEdit._fields[1:])
    return map(DeliveredEdit._make, zip(numbers, *columns, strict=True))


def _span(sizes: Sequence[int]) -> int | str:
    least, most = min(sizes), max(sizes)
    return most if least == most else f"{least} to {most}"
