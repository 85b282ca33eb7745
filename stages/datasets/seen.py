"""What the image files of a data set were like when a unit read them, and whether they are so still.

A plan reads lists, and no image file is looked at: asking for the size of one takes longer than reading its row. The worker that reads the
images of a slice notes their sizes with its unit instead. A step that is resumed looks again: a slice with an image that has been added,
removed or replaced by one of another size gets another fingerprint, so it is new work, and that slice alone. Images inside of other files
are part of the fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from stages.datasets import reference_json, table
from stages.datasets.io.locations import WEB, Sizes
from stages.datasets.slices import Slice
from stages.engine import unit_log
from stages.engine.ids import settings_hash
from stages.engine.rundir import StepFolder

IMAGE_FILES: Mapping[str, Callable[[Slice], Iterator[str]]] = {
    table.TABLE: table.image_files,
    table.TRIPLETS: table.image_files,
    reference_json.DATASET: reference_json.image_files,
}
"""Paths of the image files that the rows of a slice name, by data set."""

UNSENT = ("missing-image", "unknown-host", "unknown-location", "html-file", "empty-file")
"""Reasons of rows whose image may be sent another time, which sizes do not tell of web servers (`pipeline run STEP --retry-images`)."""


def seen(piece: Slice, sizes: Sizes) -> str:
    """Hash of the sizes of the image files that the rows of a slice name, and of URLs of web servers, which are not asked for sizes: with
    another folder of images these are other files. Empty where the rows name none.

    Raises ``OSError`` with a sentence when a server does not answer.
    """
    paths = IMAGE_FILES[piece.dataset](piece) if piece.dataset in IMAGE_FILES else ()
    found = [path if path.startswith(WEB) else sizes.of(path) for path in paths]
    return settings_hash("sizes", found) if found else ""


def as_they_are(step: StepFolder, slices: Iterable[Slice], unit_key: Callable[[Slice], str]) -> list[Slice]:
    """The slices of a step that may have been begun; those are ``changed`` whose image files are not as their unit found them.

    unit_key: name of the unit that reads a slice. Raises ``OSError`` with a sentence when a server does not answer.
    """
    records, sizes = unit_log.sound(step), Sizes()
    found = []
    for piece in slices:
        record = records.get(unit_key(piece)) if records else None
        now = seen(piece, sizes) if record is not None and record.seen else ""
        found.append(replace(piece, changed=now) if record is not None and now != record.seen else piece)
    return found
