"""Candidates that the step generate of a run made, as edits: to score them, and to keep the best of N per source.

A candidate that its editor failed to make is set aside with the editor's error. The plan reads the columns of ids; its memory is an entry
per candidate (about 250 bytes). A unit's tables are named by the hash of their inputs, and the fingerprints use these names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
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
from stages.engine.rundir import RunDir

DATASET = "candidates"
OF_SOURCE = ["instruction", "image", "language", "task", "split"]
OF_CANDIDATE = ["candidate_id", "source_id", "editor", "editor_revision", "seed", "image", "status", "error", "metadata"]


def plan(config: CandidateEdits, request: Request) -> list[Slice]:
    """Slices of candidates. Raises ``ValueError`` when the run has not generated any."""
    step = RunDir(config.path).step(steps.GENERATE)
    entries: list[tuple[str, int, int, int, int]] = []
    for part in step.require().artifacts["candidates"]:
        unit = part.path.rpartition("/")[0]
        sources = {source_id: (group, row) for group, row, source_id in _ids(f"{step.path}/{unit}/sources.parquet")}
        for group, row, source_id in _ids(f"{step.path}/{part.path}"):
            entries.append((unit, group, row, *sources[source_id]))
    if not entries:
        raise ValueError(f"{request.key}: {config.path} has no candidates; run its step generate")
    return cut(DATASET, str(step.path), {}, entries, request.unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the candidates and their sources."""
    with OneOpen(piece.location) as tables, OneOpen(piece.location) as source_tables:
        candidates = _read(tables, ((f"{unit}/candidates.parquet", *address) for _, (unit, *address, _, _) in piece.rows), OF_CANDIDATE)
        sources = _read(source_tables, ((f"{unit}/sources.parquet", *address) for _, (unit, _, _, *address) in piece.rows), OF_SOURCE)
        for (number, _), row, source in zip(piece.rows, candidates, sources, strict=True):
            where = position(DATASET, number)
            if row["status"] != "ok":
                yield Quarantined(row["candidate_id"], where, "failed-candidate", f"{row['editor']} could not make it: {row['error']}")
                continue
            made = json.loads(row["metadata"])
            facts = {name: row[name] for name in ("candidate_id", "source_id", "editor", "editor_revision", "seed")}
            yield Edit(
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
                licence=made.get("licence", ""),
                metadata=json.dumps(facts | {"made": made}, sort_keys=True, ensure_ascii=False),
                split=source["split"],
                editor=row["editor"],
                seed=str(row["seed"]),
            )


def _ids(path: str) -> Iterator[tuple[int, int, str]]:
    """Row group, row in it and source id of every row."""
    with opened(path) as file:
        table = pq.ParquetFile(file)
        for group in range(table.num_row_groups):
            column = table.read_row_group(group, columns=["source_id"]).column("source_id").to_pylist()
            yield from ((group, row, source_id) for row, source_id in enumerate(column))


def _read(tables: OneOpen, addresses: Iterable[RowAddress], columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows in the wanted order; one that is wanted several times in a row is read once."""

    def open_block(name: str, group: int, first: int) -> Iterator[pa.RecordBatch]:
        return parquet_files.rows(pq.ParquetFile(tables.get(name)), group, first, columns)

    repeated = [(address, len(list(same))) for address, same in groupby(addresses)]
    for batch, (_, count) in zip(read_addressed((address for address, _ in repeated), open_block), repeated, strict=True):
        row = batch.to_pylist()[0]
        yield from repeat(row, count)
