"""Tables of edits: Parquet, JSON Lines, JSON, CSV or TSV with a column per role, of one's own or as published (``presets``).

Image cells hold the Hub's struct {bytes, path}, encoded bytes, a path, or a list of one of these. One or many files; row numbers count over
all of them. The plan reads footers of Parquet files and scans text files; its memory is that of their row groups, or of a span per 256
records, not of rows. A worker reads a few rows at a time. Rows out of order (shards are shuffled) cost a pass over the beginning of their
row group each: small row groups, such as the Hub's 100 rows, make that cheap.

Fingerprints are made of the sizes and places of row groups, and of the bytes of text. An image that changes is noticed when
shards are written: a sample's id is made of its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stages.config import WorldConfig
from stages.datasets import cells, language, parquet_files, presets, text_tables
from stages.datasets.blocks import Block, read_places
from stages.datasets.cells import Fault
from stages.datasets.config import TableEdits
from stages.datasets.files import OneOpen, find, opened
from stages.datasets.slices import Edit, Slice, cut_blockwise, is_text, position
from stages.datasets.text_tables import Bad
from stages.engine.contracts import Quarantined
from stages.engine.ids import ID_DIGITS

DATASET = "table"
WHAT = "filter.input"
SUFFIXES = (parquet_files.SUFFIX, *text_tables.SUFFIXES)
READ_AHEAD = 1 << 20
BLOCK_RECORDS = 256
"""Records of a text file between two places where reading can begin."""

Row = Mapping[str, Any] | Bad


def plan(config: TableEdits, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of spans of rows. Raises ``ValueError`` naming what is there when files or columns are missing."""
    columns, optional, licence = presets.resolved(config)
    folder, names = find(config.path, suffixes=SUFFIXES, what=WHAT, in_folder=(parquet_files.SUFFIX,))
    needed = [name for role, name in columns.items() if role not in optional]
    blocks = chain.from_iterable(_blocks(folder, name, needed) for name in names)
    shared = {"columns": columns, "licence": licence, "preset": config.preset or ""}
    slices = cut_blockwise(DATASET, folder, shared, blocks, unit_rows, images=config.images or "")
    if not slices:
        raise ValueError(f"{WHAT}: {config.path} has no rows")
    return slices


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the rows, and the images that they name."""
    columns: Mapping[str, str] = piece.shared["columns"]
    with OneOpen(piece.location) as files:
        places = ((name, start, row) for _, (name, start, row, _) in piece.rows)
        rows = read_places(places, lambda name, start, first: _rows(files, name, start, first, set(columns.values())))
        for (number, (name, *_)), row in zip(piece.rows, rows, strict=True):
            yield _edit(piece, columns, number, name, row.to_pylist()[0] if isinstance(row, pa.RecordBatch) else row)


def _edit(piece: Slice, columns: Mapping[str, str], number: int, file: str, row: Row) -> Edit | Quarantined:
    where = position(file, number)
    if isinstance(row, Bad):
        return Quarantined(str(number), where, "bad-line", row.message)
    values = {role: row.get(name) for role, name in columns.items()}
    labels = {role: cells.text(values.get(role)) for role in presets.OPTIONAL}
    row_id = labels["id"] or str(number)
    instruction = cells.instruction(values["instruction"])
    if not isinstance(instruction, Fault) and not is_text([row_id, labels, instruction]):
        return Quarantined(str(number), where, "bad-line", "the row has text that is not valid Unicode")
    if isinstance(instruction, Fault):
        return Quarantined(row_id, where, *instruction)
    base = piece.images or f"{piece.location}/{file}".rpartition("/")[0]
    source, edited = (cells.image(values[role], base, role) for role in ("source", "edited"))
    faults = [found for found in (source, edited) if isinstance(found, Fault)]
    if isinstance(source, Fault) or isinstance(edited, Fault):
        return Quarantined(row_id, where, faults[0].reason, "; ".join(fault.message for fault in faults))
    wording, others = instruction
    return Edit(
        row_id=row_id,
        position=where,
        dataset=piece.shared["preset"] or DATASET,
        source=source[0],
        source_path=source[1],
        instruction=wording,
        edited=edited[0],
        edited_path=edited[1],
        language=labels["language"] or language.by_characters(wording),
        task=labels["task"],
        licence=labels["licence"] or piece.shared["licence"],
        metadata=json.dumps({"instructions": others}, ensure_ascii=False) if others else "{}",
    )


def _rows(files: OneOpen, name: str, start: int, first: int, wanted: set[str]) -> Iterator[pa.RecordBatch | Row]:
    """Rows of a block: batches of one row of a row group, records of a text file."""
    if not name.lower().endswith(parquet_files.SUFFIX):
        return islice((record for _, record in text_tables.records(files.get(name), f"{files.folder}/{name}", start)), first, None)
    table = pq.ParquetFile(files.get(name), buffer_size=READ_AHEAD)
    return parquet_files.rows(table, start, first, [column for column in table.schema_arrow.names if column in wanted])


def _blocks(folder: str, name: str, needed: list[str]) -> Iterator[Block]:
    """Blocks of a file, in order. Raises ``ValueError`` for a file that cannot be read or lacks a column."""
    if name.lower().endswith(parquet_files.SUFFIX):
        with parquet_files.opened(folder, name, needed=needed, what=WHAT) as table:
            for group in range(table.num_row_groups):
                yield Block(name, group, table.metadata.row_group(group).num_rows, parquet_files.mark(table, group))
    else:
        with opened(f"{folder}/{name}") as file:
            yield from _text_blocks(folder, name, file, needed)


def _text_blocks(folder: str, name: str, file: BinaryIO, needed: list[str]) -> Iterator[Block]:
    checked = False
    with opened(f"{folder}/{name}") as again:
        for begin, end, count, columns in _text_spans(file, f"{folder}/{name}"):
            if not checked:
                parquet_files.check_columns(f"{folder}/{name}", columns, needed, what=WHAT)
                checked = True
            again.seek(begin)
            data = again.read(-1 if end is None else end - begin)
            yield Block(name, begin, count, hashlib.sha256(data).hexdigest()[:ID_DIGITS])


def _text_spans(file: BinaryIO, path: str) -> Iterator[tuple[int, int | None, int, list[str]]]:
    """Where each block begins and ends (None: with the file), its records, and the columns that occur in it."""
    begin = count = 0
    columns: dict[str, None] = {}
    for at, record in text_tables.records(file, path):
        if count == BLOCK_RECORDS:
            yield begin, at, count, list(columns)
            begin, count, columns = at, 0, {}
        count += 1
        if isinstance(record, dict):
            columns |= dict.fromkeys(record)
    if count:
        yield begin, None, count, list(columns)
