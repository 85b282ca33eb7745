"""Candidates that the step generate of a run made, as edits: to score them, and to keep the best of N per source.

They come source by source, although each editor has tables of its own, so that what the candidates of a source share is computed once. A
candidate that its editor failed to make is set aside with the editor's error. The plan reads the columns of ids; its memory is an entry
per candidate (about 250 bytes). A unit's tables are named by the hash of their inputs, and the fingerprints use these names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets.config import CandidateEdits
from stages.datasets.io import parquet_files
from stages.datasets.io.blocks import RowAddress, read_addressed
from stages.datasets.io.files import OneOpen, opened
from stages.datasets.slices import Edit, Request, Slice, cut, position
from stages.engine import steps
from stages.engine.contracts import Quarantined
from stages.engine.rundir import RunDir, StepFolder

DATASET = "candidates"
OF_SOURCE = ["instruction", "image", "language", "task", "split", "benchmark", "licence"]
OF_CANDIDATE = [
    "candidate_id", "source_id", "editor", "editor_revision", "seed", "image", "status", "error", "licence", "flags", "record", "metadata",
]  # fmt: skip
TOGETHER = 48
"""Rows that are read together: those of one source are in the files of all editors."""


def plan(config: CandidateEdits, request: Request) -> list[Slice]:
    """Slices of candidates. Raises ``ValueError`` when the run has not generated any."""
    step = RunDir(config.path).step(steps.GENERATE)
    sources = {name: (number, address) for number, (name, address) in enumerate(_addresses(step, "sources"))}
    found = [(*sources[name], address) for name, address in _addresses(step, "candidates")]
    if not found:
        raise ValueError(f"{request.key}: {config.path} has no candidates; run its step generate")
    found.sort(key=lambda entry: entry[0])
    return cut(DATASET, str(step.path), {}, [(*candidate, *source) for _, source, candidate in found], request.unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the candidates and their sources."""
    with OneOpen(piece.location) as tables:
        left = iter(piece.rows)
        while rows := list(islice(left, TOGETHER)):
            candidates = _read(tables, [(file, group, row) for _, (file, group, row, *_) in rows], OF_CANDIDATE)
            sources = _read(tables, [(file, group, row) for _, (_, _, _, file, group, row) in rows], OF_SOURCE)
            for (number, _), candidate, source in zip(rows, candidates, sources, strict=True):
                yield _edit(position(DATASET, number), candidate, source)


def _edit(where: str, row: dict[str, Any], source: dict[str, Any]) -> Edit | Quarantined:
    if row["status"] != "ok":
        return Quarantined(row["candidate_id"], where, "failed-candidate", f"{row['editor']} could not make it: {row['error']}")
    facts = {name: row[name] for name in ("candidate_id", "source_id", "editor", "editor_revision", "seed", "flags")}
    facts |= {"benchmark": source["benchmark"]} if source["benchmark"] else {}
    facts |= {"source_licence": source["licence"]} if source["licence"] else {}
    facts |= {"record": json.loads(row["record"]), "made": json.loads(row["metadata"])}
    return Edit(
        row_id=row["candidate_id"],
        position=where,
        dataset=DATASET,
        source=source["image"]["bytes"],
        source_path=source["image"]["path"],
        instruction=source["instruction"],
        edited=row["image"]["bytes"],
        edited_path=row["image"]["path"],
        language=source["language"],
        task=source["task"],
        licence=row["licence"],
        metadata=json.dumps(facts, sort_keys=True, ensure_ascii=False),
        split=source["split"],
        benchmark=source["benchmark"],
        editor=row["editor"],
        seed=str(row["seed"]),
    )


def _addresses(step: StepFolder, artifact: str) -> Iterator[tuple[str, RowAddress]]:
    """Source id and address of every row of an artifact: file, row group, row in it."""
    for part in step.require().artifacts[artifact]:
        with opened(f"{step.path}/{part.path}") as file:
            table = pq.ParquetFile(file)
            for group in range(table.num_row_groups):
                column = table.read_row_group(group, columns=["source_id"]).column("source_id").to_pylist()
                yield from ((source_id, (part.path, group, row)) for row, source_id in enumerate(column))


def _read(tables: OneOpen, addresses: Sequence[RowAddress], columns: list[str]) -> list[dict[str, Any]]:
    """Rows in the wanted order, each read once, in the order of the files."""

    def open_block(name: str, group: int, first: int) -> Iterator[pa.RecordBatch]:
        return parquet_files.rows(pq.ParquetFile(tables.get(name)), group, first, columns, f"{tables.folder}/{name}")

    ordered = sorted(set(addresses))
    rows = {address: batch.to_pylist()[0] for address, batch in zip(ordered, read_addressed(ordered, open_block), strict=True)}
    return [rows[address] for address in addresses]
