"""Edits that somebody delivers: source, instruction, edited image. One file per kind of data set.

Each reader has ``plan`` (runs on the driver and never reads images) and ``fetch`` (runs in a worker: the rows of a slice in their order,
as encoded bytes, or the reason why a row cannot be one). Here is what holds for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from PIL import Image

from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from stages.config import WorldConfig
from stages.datasets import candidates, editreward_data, sharegpt4o, tables, triplets, webdataset_tars, world_edits
from stages.datasets.config import EditsInput
from stages.datasets.memory import samples
from stages.datasets.slices import Edit, Slice, kept, numbers_of, pick, position
from stages.engine import images
from stages.engine.contracts import Quarantined

__all__ = [
    "READERS",
    "Edit",
    "Reader",
    "Slice",
    "fetch",
    "fetch_known",
    "good",
    "kept",
    "knows_truth",
    "load",
    "numbers_of",
    "opened",
    "pick",
    "plan",
    "position",
    "samples",
]


class Reader(Protocol):
    """What a reader's module offers; ``config`` is the data set's own configuration."""

    def plan(self, config: Any, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
        """Slices of the data set. Raises ``ValueError`` with one sentence when there is nothing that can be read."""
        ...

    def fetch(self, piece: Slice) -> Iterator[Edit | Quarantined]:
        """The rows of a slice, not decoded."""
        ...


READERS: dict[str, Reader] = {
    "world-edits": world_edits,
    "sharegpt4o": sharegpt4o,
    "triplets": triplets,
    "table": tables,
    "editreward-data": editreward_data,
    "webdataset": webdataset_tars,
    "candidates": candidates,
}


def plan(config: EditsInput, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows. Raises ``ValueError`` with one sentence when the data set cannot be read."""
    return READERS[config.dataset].plan(config, seed=seed, world=world, unit_rows=unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order, not decoded."""
    return READERS[piece.dataset].fetch(piece)


def load(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Rows of a slice in their order; both images of every edit have been decoded completely, once."""
    for entry in fetch(piece):
        found = entry if isinstance(entry, Quarantined) else opened(entry)
        yield found if isinstance(found, Quarantined) else entry


def fetch_known(piece: Slice, sample_ids: Sequence[str]) -> Iterator[Edit]:
    """Rows of a slice that were scored under these ids. Raises ``ValueError`` naming a row whose content is no longer the same."""
    for sample_id, entry in zip(sample_ids, fetch(piece), strict=True):
        if isinstance(entry, Quarantined) or entry.sample_id != sample_id:
            now = entry.message if isinstance(entry, Quarantined) else "an image or the instruction is another"
            remedy = "restore the data set, or score it in a new run directory"
            raise ValueError(f"{entry.position} changed since it was scored as sample {sample_id} ({now}); {remedy}")
        yield entry


def knows_truth(dataset: str) -> bool:
    """Whether the data set's metadata says how good its edits are."""
    return dataset == world_edits.DATASET


def good(metadata: Sequence[str]) -> np.ndarray:
    """Which edits of a data set that knows the truth are good in both dimensions, bool [n]."""
    return world_edits.good(metadata)


def opened(edit: Edit) -> tuple[Image.Image, Image.Image] | Quarantined:
    """Source and edited image, decoded completely (reward/inputs/decoding.py); or why there are none."""
    found = []
    for role, data, path in (("source", edit.source, edit.source_path), ("edited", edit.edited, edit.edited_path)):
        if images.extension(data) is None:
            message = f"the {role} image {path} is not PNG, JPEG or WebP; convert it"
            return Quarantined(edit.row_id, edit.position, "unsupported-format", message)
        try:
            found.append(decode(data, what=f"the {role} image {path}"))
        except ImageError as error:
            return Quarantined(edit.row_id, edit.position, "undecodable-image", str(error))
    return found[0], found[1]
