"""What a JSON Lines file of triplets (``dataset: triplets``) has beyond a table with the same columns.

All values are texts, and no two rows have the same id; a row that breaks a rule is set aside with the number of its line. Other columns are
metadata. Blocks end where units end, so a changed line is new work for its unit alone. Making the plan takes 12 bytes per row.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stages.datasets.io import locations, text_blocks
from stages.datasets.io.blocks import Block
from stages.datasets.io.faults import Fault
from stages.datasets.io.text_blocks import TextBlock
from stages.datasets.io.text_tables import Bad, Record
from stages.datasets.slices import is_text
from stages.engine.ids import ID_DIGITS

LABELS = ("task", "language", "licence")
DUPLICATE = "duplicate-id"
SHOWN = 6
"""Most keys that a message names."""


class Mark(NamedTuple):
    """What is known of a block: hash of its bytes, and its bad rows with reason and message."""

    content: str
    faults: tuple[tuple[int, str, str], ...] = ()

    def fault(self, row: int, row_id: str) -> Fault | None:
        """What is wrong with a row of the block."""
        found = [
            Fault(reason, message.format(row_id) if reason == DUPLICATE else message) for at, reason, message in self.faults if at == row
        ]
        return found[0] if found else None


def blocks(folder: str, name: str, unit_rows: int, images: Sequence[str]) -> list[Block]:
    """Blocks of a file. ``images``: names of the columns of images."""
    found: list[Block] = []
    ids, lines = array("q"), array("I")  # of all rows in order: digest of the id (0 where it does not count), number of the line
    for block in text_blocks.blocks(f"{folder}/{name}", unit_rows):
        numbers = block.lines()
        faults = {} if _all_sound(block, images) else _faults(block.records, images)
        counting = (record if isinstance(record, dict) and row not in faults else {} for row, record in enumerate(block.records))
        ids.extend([locations.digest(str(record["id"])) if "id" in record else 0 for record in counting])
        lines.frombytes(numbers.astype(np.uint32).tobytes())
        of_rows = tuple((row, fault.reason, f"line {numbers[row]}: {fault.message}") for row, fault in faults.items())
        found.append(Block(name, block.begin, len(block.records), Mark(hashlib.sha256(block.data).hexdigest()[:ID_DIGITS], of_rows)))
    return list(_without_duplicates(found, np.frombuffer(ids, np.int64), np.frombuffer(lines, np.uint32)))


def _all_sound(block: TextBlock, images: Sequence[str]) -> bool:
    """Whether no row of a block has a fault for certain, as is so in nearly all blocks: columns are looked at faster than rows."""
    rows = [record for record in block.records if isinstance(record, dict)]
    if len(rows) < len(block.records) or not block.is_text():
        return False
    needed: list[list[Any]] = [[row.get(column) for row in rows] for column in (*images, "instruction")]
    labels = [[row.get(column, "") for row in rows] for column in LABELS]
    texts = all(set(map(type, column)) == {str} for column in (*needed, *labels))
    return texts and all(map(all, needed)) and not any(map(str.isspace, needed[-1]))


def _faults(records: Sequence[Record], images: Sequence[str]) -> dict[int, Fault]:
    """What is wrong with records, by their place."""
    found = ((row, _fault(record, images)) for row, record in enumerate(records))
    return {row: fault for row, fault in found if fault is not None}


def _fault(record: Record, images: Sequence[str]) -> Fault | None:
    if isinstance(record, Bad):
        return Fault("bad-line", record.message)
    if not is_text(record):
        return Fault("bad-line", "the row has text that is not valid Unicode")
    instruction: Any = record.get("instruction")
    if "instruction" not in record:
        keys = ", ".join(map(repr, [*record][:SHOWN]))
        return Fault("empty-instruction", f"there is no instruction among the keys {keys or 'of the row'}")
    if instruction is None or (isinstance(instruction, str) and not instruction.strip()):
        return Fault("empty-instruction", "there is no instruction")
    for column in (*images, "instruction", *LABELS):
        value = record.get(column, "" if column in LABELS else None)
        if not isinstance(value, str) or not (value or column in LABELS):
            return Fault("bad-row", f"{column} should be a text, it is {value!r}")
    return None


def _without_duplicates(found: Sequence[Block], ids: np.ndarray, lines: np.ndarray) -> Iterator[Block]:
    """The blocks; a row whose id an earlier row has is one of their faults. ``ids`` int64 [rows], ``lines`` uint32 [rows]."""
    rows = np.flatnonzero(ids)
    rows = rows[np.argsort(ids[rows], kind="stable")]  # equal ids are neighbours, in the order of the file
    ordered = ids[rows]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    first = rows[np.searchsorted(ordered, ordered[again])]
    earlier = dict(zip(rows[again].tolist(), lines[first].tolist(), strict=True))
    begin = 0
    for block in found:
        there = [row for row in range(block.rows) if begin + row in earlier] if earlier else []
        more = [(row, DUPLICATE, f"line {lines[begin + row]} has the id {{!r}} of line {earlier[begin + row]}") for row in there]
        yield block._replace(mark=block.mark._replace(faults=(*block.mark.faults, *more))) if more else block
        begin += block.rows
