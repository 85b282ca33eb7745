"""Tables with a column per role: Parquet, JSON Lines, JSON, CSV or TSV, of one's own or as published (``presets``).

Image cells hold the Hub's struct {bytes, path}, encoded bytes, a path, or a list of one of these. One or many files; row numbers count over
all of them. The plan reads footers of Parquet files and scans text files; its memory is that of their row groups, or of a span per 256
records, not of rows. A worker reads a few rows at a time. Rows out of order (shards are shuffled) cost a pass over the beginning of their
row group each: small row groups, such as the Hub's 100 rows, make that cheap.

Fingerprints are made of the sizes and offsets of row groups, and of the bytes of text. Image files are looked at by the workers that read
them (``seen``). The data set ``triplets`` is a table with stricter rows (``triplets``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets import presets, quotas, triplets
from stages.datasets.config import CandidateTable, SourceTable, Table, TableEdits, TableSources, TripletEdits
from stages.datasets.io import cells, files, locations, parquet_files, text_blocks, text_tables
from stages.datasets.io.blocks import Block, read_addressed
from stages.datasets.io.faults import Fault
from stages.datasets.io.text_tables import Bad
from stages.datasets.slices import Edit, Request, Slice, cut_blockwise, is_text, position
from stages.engine.contracts import Quarantined
from stages.engine.ids import ID_DIGITS

TABLE, TRIPLETS = "table", "triplets"
SUFFIXES = (parquet_files.SUFFIX, *text_tables.SUFFIXES)
READ_AHEAD = 1 << 20
ROLES = ("source", "edited")
"""Of images."""

Row = Mapping[str, Any] | Bad


def plan(config: TableEdits | TripletEdits | TableSources, request: Request) -> list[Slice]:
    """Slices of spans of rows. Raises ``ValueError`` naming what is there when files or columns are missing."""
    if not isinstance(config, TableSources):
        return _plan(config, request)
    slices = []
    for number, entry in enumerate(config.tables):
        named = replace(request, key=f"{request.key}.tables.{number}")
        slices += quotas.wanted(_plan(entry, named), entry, named, _columns)
    return slices


def _plan(config: Table | TripletEdits, request: Request) -> list[Slice]:
    columns, optional, licence = _layout(config, request)
    if isinstance(config, TripletEdits):
        dataset, name, images = TRIPLETS, "", ""
        folder, (file,) = files.one(config.path, what=request.key)
        roles = [column for role, column in columns.items() if role in ("source", "edited")]
        blocks = iter(triplets.blocks(folder, file, request.unit_rows, roles))
    else:
        dataset, images = TABLE, config.images or ""
        name = config.name if isinstance(config, SourceTable) else config.preset or ""
        folder, names = files.find(config.path, suffixes=SUFFIXES, what=request.key, in_folder=(parquet_files.SUFFIX,))
        needed = [column for role, column in columns.items() if role not in optional]
        needed += config.only if isinstance(config, SourceTable) else ()
        blocks = files.of_each(folder, names, lambda file: _blocks(folder, file, needed, request.key))
    shared: dict[str, Any] = {"columns": columns, "licence": licence, "preset": name}
    if benchmark := _benchmark(config):
        shared |= {"benchmark": benchmark}
    if isinstance(config, Table) and config.preset and presets.PRESETS[config.preset].id_folders:
        shared |= {"id_folders": True}
    slices = cut_blockwise(dataset, folder, shared, blocks, request.unit_rows, images=images)
    if not slices:
        raise ValueError(f"{request.key}: {config.path} has no rows")
    return slices


def _layout(config: Table | TripletEdits, request: Request) -> tuple[dict[str, str], set[str], str]:
    """Column by role, the roles that may be absent from the table, and the licence of rows that name none.

    Raises ``ValueError`` for a preset without edited images where they are needed.
    """
    if isinstance(config, TripletEdits):
        columns, optional, licence = presets.OWN.columns, set(presets.OWN.columns), ""  # what is absent is a fault of the row
    else:
        preset = (
            presets.PRESETS[config.preset] if config.preset else presets.OWN_SOURCES if isinstance(config, SourceTable) else presets.OWN
        )
        given = {role: name for role, name in config.columns.model_dump().items() if name is not None}
        columns, licence = preset.columns | given, config.licence or preset.licence
        optional = set() if config.preset else set(presets.OPTIONAL) - given.keys()
        if isinstance(config, SourceTable):
            columns, optional = columns | {presets.SPLIT: presets.SPLIT}, optional | {presets.SPLIT}
        if isinstance(config, CandidateTable):
            columns = {name: name for name in (presets.EDITOR, presets.SEED)} | columns
            optional |= {presets.SEED} - given.keys()
        if request.edited and "edited" not in columns:
            raise ValueError(
                f"{request.key}: {config.preset} has sources and instructions but no edited images; use it as a reference of "
                f"filter.contamination, or name the column of your edits in {request.key}.columns.edited"
            )
    return {role: name for role, name in columns.items() if request.edited or role != "edited"}, optional, licence


def _benchmark(config: Table | TripletEdits) -> str:
    """Whose items the rows are; empty for no benchmark."""
    if isinstance(config, SourceTable) and config.benchmark is not None:
        return config.benchmark
    return presets.PRESETS[config.preset].benchmark if isinstance(config, Table) and config.preset else ""


def _columns(piece: Slice, names: Set[str]) -> Iterator[Row]:
    """The values of these columns in all rows of a slice, without any image."""
    with files.OneOpen(piece.location) as tables:
        addresses = ((name, start, row) for _, (name, start, row, _) in piece.rows)
        for row in read_addressed(addresses, lambda name, start, first: _rows(tables, name, start, first, names, False)):
            yield parquet_files.values(row, names) if isinstance(row, pa.RecordBatch) else row


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the rows, and the images that they name."""
    columns: Mapping[str, str] = piece.shared["columns"]
    with files.OneOpen(piece.location) as tables:
        addresses = ((name, start, row) for _, (name, start, row, _) in piece.rows)
        rows = read_addressed(addresses, lambda name, start, first: _rows(tables, name, start, first, set(columns.values()), piece.edited))
        for (number, (name, _, place, mark)), row in zip(piece.rows, rows, strict=True):
            values = parquet_files.values(row, columns.values()) if isinstance(row, pa.RecordBatch) else row
            if piece.dataset == TRIPLETS:
                row_id = str(values.get("id", number)) if isinstance(values, dict) and is_text(values) else str(number)
                fault = mark.fault(place, row_id)
                if fault is not None:
                    yield Quarantined(row_id, position(name, number), *fault)
                    continue
            yield _edit(piece, columns, number, name, values)


def image_files(piece: Slice) -> Iterator[str]:
    """Paths of the image files that the rows name which are records of text files, in their order. Rows of Parquet files hold images."""
    rows = [row for row in piece.rows if not row[1][0].lower().endswith(parquet_files.SUFFIX)]
    columns = [piece.shared["columns"][role] for role in ROLES if role in piece.shared["columns"]]
    for (_, (file, *_)), row in zip(rows, _columns(replace(piece, rows=rows), set(columns)), strict=True):
        if isinstance(row, Bad):
            continue
        base = _base(piece, file)
        for column in columns:
            cell = cells.in_id_folder(row.get(column)) if piece.shared.get("id_folders") else row.get(column)
            if name := cells.path(cell):
                yield locations.join(base, name)


def _base(piece: Slice, file: str) -> str:
    """The folder that the paths of images in a file are relative to."""
    return piece.images or f"{piece.location}/{file}".rpartition("/")[0]


def _edit(piece: Slice, columns: Mapping[str, str], number: int, file: str, row: Row) -> Edit | Quarantined:
    where = position(file, number)
    if isinstance(row, Bad):
        return Quarantined(str(number), where, "bad-line", row.message)
    values = {role: row.get(name) for role, name in columns.items()}
    labels = {role: cells.text(values.get(role)) for role in (*presets.OPTIONAL, presets.SPLIT, presets.EDITOR, presets.SEED)}
    if piece.dataset == TRIPLETS:
        labels |= {name: cells.text(row.get(name)) for name in (presets.EDITOR, presets.SEED)}
    row_id = labels["id"] or str(number)
    instruction = cells.instruction(values["instruction"])
    if not isinstance(instruction, Fault) and not is_text([row_id, labels, instruction]):
        return Quarantined(str(number), where, "bad-line", "the row has text that is not valid Unicode")
    if isinstance(instruction, Fault):
        return Quarantined(row_id, where, *instruction)
    base = _base(piece, file)
    if piece.shared.get("id_folders"):
        values |= {role: cells.in_id_folder(values[role]) for role in ROLES if role in values}
    source = cells.image(values["source"], base, "source")
    edited = cells.image(values["edited"], base, "edited") if "edited" in columns else (b"", None)
    if isinstance(source, Fault) or isinstance(edited, Fault):
        faults = [found for found in (source, edited) if isinstance(found, Fault)]
        return Quarantined(row_id, where, faults[0].reason, "; ".join(fault.message for fault in faults))
    wording, others = instruction
    metadata = cells.plain({name: value for name, value in row.items() if name not in columns.values()})
    metadata |= {"instructions": others} if others else {}
    return Edit(
        row_id=row_id,
        position=where,
        dataset=piece.shared["preset"] or piece.dataset,
        source=source[0],
        source_path=source[1],
        instruction=wording,
        edited=edited[0],
        edited_path=edited[1],
        language=labels["language"] or cells.by_characters(wording),
        task=labels["task"],
        licence=labels["licence"] or piece.shared["licence"],
        metadata=json.dumps(metadata, sort_keys=True, ensure_ascii=False),
        split=labels[presets.SPLIT],
        editor=labels[presets.EDITOR],
        seed=labels[presets.SEED],
        benchmark=piece.shared.get("benchmark", ""),
    )


def _rows(tables: files.OneOpen, name: str, start: int, first: int, wanted: Set[str], others: bool) -> Iterator[pa.RecordBatch | Row]:
    """Rows of a block: batches of one row of a row group, records of a text file. ``others``: with the other columns of a Parquet file
    too, but for those with images or other bytes."""
    path = f"{tables.folder}/{name}"
    if not name.lower().endswith(parquet_files.SUFFIX):
        found = text_tables.records(tables.get(name), path, start, text_tables.EXACT)
        return islice((record for _, record in found), first, None)
    table = pq.ParquetFile(tables.get(name), buffer_size=READ_AHEAD)
    schema = table.schema_arrow
    named = [field.name for field in schema if field.name in wanted or (others and not parquet_files.has_bytes(field.type))]
    return parquet_files.rows(table, start, first, named, path)


def _blocks(folder: str, name: str, needed: list[str], key: str) -> Iterator[Block]:
    """Blocks of a file, in order. Raises ``ValueError`` for a file that cannot be read, lacks a column or has one twice."""
    if name.lower().endswith(parquet_files.SUFFIX):
        with parquet_files.opened(folder, name, needed=needed, what=key) as table:
            for group in range(table.num_row_groups):
                yield Block(name, group, table.metadata.row_group(group).num_rows, parquet_files.mark(table, group))
        return
    path = f"{folder}/{name}"
    for number, block in enumerate(text_blocks.blocks(path)):
        if number == 0:
            parquet_files.check_columns(path, text_blocks.columns(path, block.records), needed, what=key)
        yield Block(name, block.begin, len(block.records), hashlib.sha256(block.data).hexdigest()[:ID_DIGITS])
