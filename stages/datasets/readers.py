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

from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from reward.model.origin import Domain
from stages.datasets import candidates, editreward_data, reference_json, sharegpt4o, table, webdataset, world
from stages.datasets.config import WorldConfig
from stages.datasets.slices import Edit, Request, Slice, kept, numbers_of, pick, position
from stages.datasets.world import samples
from stages.engine import images
from stages.engine.contracts import Quarantined

__all__ = [
    "READERS", "Edit", "Reader", "Slice", "domain_of", "fetch", "fetch_known", "good", "kept", "knows_truth", "load", "numbers_of",
    "opened", "pick", "plan", "position", "samples",
]  # fmt: skip


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
    sizes: bool = False,
) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows of the data set that ``config``, one of stages/datasets/config.py, describes.

    ``key``, ``edited`` and ``sizes`` as in :class:`Request`. Raises ``ValueError`` with one sentence when the data set cannot be read.
    """
    request = Request(unit_rows, key, edited, seed, world, sizes)
    return [replace(piece, edited=edited) for piece in READERS[config.dataset].plan(config, request)]


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order, not decoded."""
    for entry in READERS[piece.dataset].fetch(piece):
        yield entry if piece.edited or isinstance(entry, Quarantined) else replace(entry, edited=b"", edited_path=None)


def load(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order. The images of every row were decoded completely; a source once where rows in succession share it."""
    decoded = ""
    for entry in fetch(piece):
        found: Any = entry
        if isinstance(entry, Edit):
            if entry.source_sha256 != decoded:
                found = _opened(entry, "source", entry.source, entry.source_path)
            if not isinstance(found, Quarantined):
                decoded = entry.source_sha256
                found = _opened(entry, "edited", entry.edited, entry.edited_path) if piece.edited else entry
        yield found if isinstance(found, Quarantined) else entry


def fetch_known(piece: Slice, sample_ids: Sequence[str]) -> Iterator[Edit]:
    """Rows of a slice that were read before under these ids. Raises ``ValueError`` naming a row whose content has changed."""
    for sample_id, entry in zip(sample_ids, fetch(piece), strict=True):
        if isinstance(entry, Quarantined) or entry.sample_id != sample_id:
            now = entry.message if isinstance(entry, Quarantined) else "an image or the instruction is another"
            remedy = "restore the data set, or use a new run directory"
            raise ValueError(f"{entry.position} changed since it was read as sample {sample_id} ({now}); {remedy}")
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


def opened(edit: Edit) -> tuple[Image.Image, Image.Image] | Quarantined:
    """Source and edited image, decoded completely (reward/inputs/decoding.py); or why they cannot be."""
    source = _opened(edit, "source", edit.source, edit.source_path)
    if isinstance(source, Quarantined):
        return source
    edited = _opened(edit, "edited", edit.edited, edit.edited_path)
    return edited if isinstance(edited, Quarantined) else (source, edited)


def _opened(edit: Edit, role: str, data: bytes, path: str | None) -> Image.Image | Quarantined:
    if images.extension(data) is None:
        message = f"the {role} image {path} is not PNG, JPEG or WebP; convert it"
        return Quarantined(edit.row_id, edit.position, "unsupported-format", message)
    try:
        return decode(data, what=f"the {role} image {path}")
    except ImageError as error:
        return Quarantined(edit.row_id, edit.position, "undecodable-image", str(error))
