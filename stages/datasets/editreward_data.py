"""TIGER-Lab/EditReward-Data (arXiv 2509.26346): pairs of rated candidates as embedded images; each candidate is read as one edit.

Columns as on the data set's card: ``key``, ``instruction``, ``source_img``, and for ``left`` and ``right`` the image
(``left_output_image``), its name (``left_img_rel``), the model, and three scores. A candidate is in every pair in which it was compared. It
is named by ``key`` and its image name, and becomes an edit at its first pair. So the 170,772 pairs give some 67,000 edits.

The plan reads the three columns of names, without images, and keeps its rows as Arrow columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets import published_ids
from stages.datasets.config import EditRewardDataEdits
from stages.datasets.io import cells, parquet_files
from stages.datasets.io.blocks import read_addressed
from stages.datasets.io.faults import Fault
from stages.datasets.io.files import OneOpen, find
from stages.datasets.io.locations import digest
from stages.datasets.io.text_tables import Bad
from stages.datasets.slices import Edit, Request, Slice, cut, position
from stages.engine.contracts import Quarantined

DATASET = "editreward-data"
SIDES = ("left", "right")
NAMES = ["key", *(f"{side}_img_rel" for side in SIDES)]
SCORES = ("overall", "instruction_following", "quality_aesthetic")
LICENCE = "CC-BY-NC-4.0, as the card of TIGER-Lab/EditReward-Data says"


def plan(config: EditRewardDataEdits, request: Request) -> list[Slice]:
    """Slices of candidates. Raises ``ValueError`` when files or columns are missing."""
    columns = sorted({column for side in SIDES for column in _columns(side)} | set(NAMES))
    folder, names = find(config.path, suffixes=(parquet_files.SUFFIX,), what=request.key)
    slices = cut(DATASET, folder, {}, _entries(folder, names, columns, request), request.unit_rows)
    if not slices:
        raise ValueError(f"{request.key}: {config.path} has no rows")
    return slices


def _entries(folder: str, names: list[str], columns: list[str], request: Request) -> Iterator[tuple[str, int, int, str, str]]:
    """File, row group, row, side and mark of every candidate, once. Names are read as bytes: one may be no UTF-8."""
    seen: set[int] = set()
    for name in names:
        with parquet_files.opened(folder, name, needed=columns, what=request.key) as table:
            for group in range(table.num_row_groups):
                mark = parquet_files.mark(table, group)
                named = table.read_row_group(group, columns=NAMES).select(NAMES).columns
                read = [(column.cast(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist() for column in named]
                for row, (key, *images) in enumerate(zip(*read, strict=True)):
                    for side, image in zip(SIDES, images, strict=True):
                        candidate = digest(repr((key, image)))
                        if candidate not in seen or image is None:
                            seen.add(candidate)
                            yield name, group, row, side, mark


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the candidates and their sources."""
    with OneOpen(piece.location) as files:
        wanted = [column for side in SIDES for column in _columns(side)]
        rows = read_addressed(
            ((name, group, row) for _, (name, group, row, *_) in piece.rows),
            lambda name, group, first: parquet_files.rows(
                pq.ParquetFile(files.get(name)), group, first, wanted, f"{piece.location}/{name}"
            ),
        )
        for (number, (name, _, _, side, _)), row in zip(piece.rows, rows, strict=True):
            yield _edit(row.select(_columns(side)), number, name, side)


def _edit(batch: pa.RecordBatch, number: int, file: str, side: str) -> Edit | Quarantined:
    where, row = position(file, number), parquet_files.values(batch, batch.schema.names)
    if isinstance(row, Bad):
        return Quarantined(str(number), where, "bad-row", row.message)
    row_id = cells.text(row[f"{side}_img_rel"]) or str(number)
    instruction = cells.instruction(row["instruction"])
    if isinstance(instruction, Fault):
        return Quarantined(row_id, where, *instruction)
    source, edited = cells.image(row["source_img"], "", "source"), cells.image(row[f"{side}_output_image"], "", "edited")
    for found in (source, edited):
        if isinstance(found, Fault):
            return Quarantined(row_id, where, *found)
    assert not isinstance(source, Fault) and not isinstance(edited, Fault)
    facts = {"key": row["key"], "model": row[f"{side}_model"]} | {name: row[f"{side}_{name}_score"] for name in SCORES}
    return Edit(
        row_id=row_id,
        position=where,
        dataset=DATASET,
        source=source[0],
        source_path=source[1],
        instruction=instruction[0],
        edited=edited[0],
        edited_path=cells.text(row[f"{side}_img_rel"]) or edited[1],
        language=cells.by_characters(instruction[0]),
        task="",
        licence=LICENCE,
        editor=cells.text(row[f"{side}_model"]),
        published_id=_published_id(cells.text(row["key"]), cells.text(row[f"{side}_img_rel"])),
        metadata=json.dumps(cells.plain(facts), sort_keys=True, ensure_ascii=False),
    )


def _published_id(key: str, image: str) -> str:
    return published_ids.of_editreward_data(key, image).candidate if key and image else ""


def _columns(side: str) -> list[str]:
    named = [f"{side}_output_image", f"{side}_img_rel", f"{side}_model", *(f"{side}_{name}_score" for name in SCORES)]
    return ["key", "instruction", "source_img", *named]
