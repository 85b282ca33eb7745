"""Reading of candidates made elsewhere: each row of a slice is decoded, and becomes ids, hashes and numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from reward.inputs.decoding import decode
from reward.likeness import perceptual_hash
from stages.datasets import readers
from stages.datasets.io.locations import Sizes
from stages.datasets.seen import seen
from stages.datasets.slices import Edit, Slice
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.units import UnitOutput, Work
from stages.generate.rows import image_group, source_id

SEEDS = range(-(2**63), 2**63)
"""Seeds that the contract can hold."""


class DeliveredEdit(NamedTuple):
    """A readable edit. ``number``: of its row in the data set; ``seed``: None where the row names none."""

    number: int
    sample_id: str
    source_id: str
    row_id: str
    position: str
    editor: str
    seed: int | None
    image_bytes: int


def make_reading() -> Work:
    """The work of a slice: a row of the contract ``delivered`` per readable edit."""

    sizes = Sizes()

    def work(piece: Slice) -> UnitOutput:
        found_now = seen(piece, sizes)  # before they are read: what changes in between is new work the next time
        rows: list[dict[str, Any]] = []
        quarantine: list[Quarantined] = []
        hashed: tuple[str, int] = ("", 0)  # the source of the row before, which rows in succession often share
        for entry in readers.load(piece):
            if isinstance(entry, Edit) and entry.source_sha256 != hashed[0]:
                hashed = entry.source_sha256, perceptual_hash(decode(entry.source, what=f"the source image {entry.source_path}"))
            row = entry if isinstance(entry, Quarantined) else _delivered(entry, hashed[1])
            (quarantine if isinstance(row, Quarantined) else rows).append(row)  # ty: ignore[invalid-argument-type]
        return UnitOutput({"delivered": contracts.table("delivered", rows)}, len(piece.rows), len(rows), quarantine, seen=found_now)

    return work


def _delivered(edit: Edit, phash: int) -> dict[str, Any] | Quarantined:
    editor, seed = edit.editor.strip(), _integer(edit.seed)
    if not editor:
        return Quarantined(edit.row_id, edit.position, "no-editor", "the row does not name the editor that made the edit")
    if edit.seed and seed is None:
        message = f"the seed should be an integer from -2^63 to 2^63 - 1, which a table can hold; it is {edit.seed[:40]!r}"
        return Quarantined(edit.row_id, edit.position, "bad-seed", message)
    return {
        "sample_id": edit.sample_id,
        "source_id": source_id(edit),
        "group": image_group(edit),
        "source_phash": phash,
        "split": edit.split,
        "published_id": edit.published_id,
        "row_id": edit.row_id,
        "position": edit.position,
        "editor": editor,
        "seed": seed,
        "image_bytes": len(edit.source) + len(edit.edited),
    }


def _integer(text: str) -> int | None:
    """The seed that a text says, also as ``7.0``, which tables with empty cells write; None where it is none."""
    whole = text.strip().removesuffix(".0")
    digits = whole.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    return int(whole) if int(whole) in SEEDS else None
