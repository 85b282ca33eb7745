"""Readers of data sets, for the sources of generate, the edits of filter and the references of contamination alike.

A reader is a file with two functions. ``plan`` runs on the driver and reads no images. ``fetch`` runs in a worker and returns the rows of a
slice in their order, with images as encoded bytes, or the reason why a row cannot be used. To add a data set, write such a file, add a
configuration class to ``stages/datasets/config.py`` and a line to the table ``READERS``. A table with other columns needs a preset only
(``presets.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from PIL import Image

from reward.inputs import jpeg_scan
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from reward.model.origin import Domain
from stages.datasets import candidates, editreward_data, reference_json, sharegpt4o, table, webdataset, world
from stages.datasets.bounds import bounded
from stages.datasets.config import WorldConfig
from stages.datasets.io import cells, image_files
from stages.datasets.io.faults import Fault
from stages.datasets.slices import Edit, Request, Slice, is_text, kept, numbers_of, pick, position
from stages.datasets.world import samples
from stages.engine import images
from stages.engine.contracts import Quarantined

__all__ = [
    "READERS", "Edit", "Reader", "Slice", "domain_of", "fatal", "fetch", "fetch_known", "good", "kept", "knows_truth", "load", "numbers_of",
    "opened", "pick", "plan", "position", "samples",
]  # fmt: skip


_HTML = (b"<!doctype html", b"<html", b"<head", b"<body")


class Reader(Protocol):
    """What a reader's file offers. ``config`` is the data set's own configuration."""

    def plan(self, config: Any, request: Request) -> list[Slice]:
        """Slices of the data set. Raises ``ValueError`` with one sentence when nothing can be read."""
        ...

    def fetch(self, piece: Slice) -> Iterator[Edit | Quarantined]:
        """The rows of a slice, not decoded. They may have edited images although the slice does without."""
        ...


READERS: dict[str, Reader] = {
    "world": world,
    "world-edits": world,
    "sharegpt4o": sharegpt4o,
    "triplets": table,
    "table": table,
    "editreward-data": editreward_data,
    "reference-json": reference_json,
    "webdataset": webdataset,
    "candidates": candidates,
}


def plan(
    config: Any,
    *,
    seed: int,
    world: WorldConfig | None,
    unit_rows: int,
    key: str = "filter.input",
    edited: bool = True,
) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows of the data set that ``config``, one of stages/datasets/config.py, describes.

    ``key`` and ``edited`` as in :class:`Request`. Raises ``ValueError`` with one sentence when the data set cannot be read.
    """
    request = Request(unit_rows, key, edited, seed, world)
    return [replace(piece, edited=edited) for piece in READERS[config.dataset].plan(config, request)]


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order, not decoded."""
    left = [row for row in piece.rows if row[0] not in piece.fatal] if piece.fatal else piece.rows
    entries = READERS[piece.dataset].fetch(replace(piece, rows=left))
    for number, _ in piece.rows:
        entry = fatal(piece.dataset, number) if number in piece.fatal else next(entries)
        if isinstance(entry, Edit):
            entry = bounded(entry if piece.edited else replace(entry, edited=b"", edited_path=None))
        yield _named(entry)


def _named(entry: Edit | Quarantined) -> Edit | Quarantined:
    """The entry with question marks for what is no Unicode in names of files: they are bytes on disk and in tars, and text in tables."""
    fields = ("row_id", "position", "source_path", "edited_path") if isinstance(entry, Edit) else ("row_id", "position", "message")
    names = {field: getattr(entry, field) for field in fields}
    return entry if is_text([*names.values()]) else replace(entry, **cells.plain(names))


def fatal(dataset: str, number: int) -> Quarantined:
    """A row that ends its process."""
    message = "reading, decoding or scoring it ended its process each time, when it was alone"
    return Quarantined(str(number), position(dataset, number), "ends-process", message)


def load(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order. The images of every row were decoded completely; a source once where rows in succession share it."""
    decoded = ""
    for entry in fetch(piece):
        found: Any = entry
        if isinstance(entry, Edit):
            if entry.source_sha256 != decoded:
                found = _opened(entry, "source", entry.source, entry.source_path, whole=True)
            if not isinstance(found, Quarantined):
                decoded = entry.source_sha256
                found = _opened(entry, "edited", entry.edited, entry.edited_path, whole=True) if piece.edited else entry
        yield found if isinstance(found, Quarantined) else entry


def fetch_known(piece: Slice, sample_ids: Sequence[str]) -> Iterator[Edit]:
    """Rows of a slice that were read before under these ids. Raises ``ValueError`` naming a row whose content has changed."""
    for sample_id, entry in zip(sample_ids, fetch(piece), strict=True):
        if isinstance(entry, Quarantined) or entry.sample_id != sample_id:
            now = entry.message if isinstance(entry, Quarantined) else "an image or the instruction is another"
            remedy = "restore the data set, or use a new run directory"
            raise ValueError(f"{entry.position} changed since it was read as sample {sample_id} (id {entry.row_id}: {now}); {remedy}")
        yield entry


def domain_of(dataset: str) -> Domain | None:
    """What the images of a data set show; None for layouts that this program writes as well, which may hold either."""
    if READERS.get(dataset) in (candidates, webdataset, reference_json):
        return None
    return "toy" if READERS.get(dataset) is world else "photographs"


def knows_truth(dataset: str) -> bool:
    """Whether the data set's metadata says how good its edits are."""
    return dataset == world.EDITS


def good(metadata: Sequence[str]) -> np.ndarray:
    """Which edits of a data set with ground-truth quality are good in both dimensions, bool [n]."""
    return world.good(metadata)


def opened(edit: Edit, *, whole: bool, source: Image.Image | None = None) -> tuple[Image.Image, Image.Image] | Quarantined:
    """Source and edited image, decoded completely (reward/inputs/decoding.py); or why they cannot be.

    whole: also look for damage that a decoder passes over (reward/inputs/jpeg_scan.py), which once per image is enough. source: where it
    was opened before.
    """
    first = source or _opened(edit, "source", edit.source, edit.source_path, whole=whole)
    if isinstance(first, Quarantined):
        return first
    edited = _opened(edit, "edited", edit.edited, edit.edited_path, whole=whole)
    return edited if isinstance(edited, Quarantined) else (first, edited)


def _opened(edit: Edit, role: str, data: bytes, path: str | None, *, whole: bool) -> Image.Image | Quarantined:
    what = f"the {role} image {path}"
    fault = image_files.too_large(len(data), what) or _no_image(data, what)
    if fault is None:
        try:
            picture = decode(data, what=what)
            damage = jpeg_scan.fault(data, picture, decode) if whole else None
            if damage is None:
                return picture
            fault = Fault("damaged-image", f"{what} is damaged: {damage}")
        except ImageError as error:
            fault = Fault("undecodable-image", str(error))
    return Quarantined(edit.row_id, edit.position, *fault)


def _no_image(data: bytes, what: str) -> Fault | None:
    """What there is in place of an image, by its first bytes."""
    if not data:
        return Fault("empty-file", f"{what} is an empty file")
    if data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML):
        return Fault("html-file", f"{what} is an HTML page, such as a server sends in place of a file; download it again")
    return None if images.extension(data) else Fault("unsupported-format", f"{what} is not PNG, JPEG or WebP; convert it")
