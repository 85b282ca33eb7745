"""Bridges to trainers that read files instead of tars: the images of a folder of shards as files, and the metadata that a trainer wants.

Every format is a module with ``files``: from the extracted samples to the metadata files by name. What holds for all is here: image
files ``source/<sample_id>.<ext>`` and ``edited/<sample_id>.<ext>`` with the bytes of the shards, every member checked while it is read, the
folder built under another name and renamed when it is whole. The same shards and the same target give the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from stages.engine import storage
from stages.shards import read as shard_reading
from stages.shards.exports import imagefolder, omnigen2, step1x
from stages.shards.exports.sample import Extracted

__all__ = ["FORMATS", "Extracted", "export"]

FORMATS: dict[str, Callable[[Sequence[Extracted], Path], dict[str, str]]] = {
    "step1x": step1x.files,
    "imagefolder": imagefolder.files,
    "omnigen2": omnigen2.files,
}
"""Per format: metadata files by name, as text, of the extracted samples; the path is that of the finished folder."""


def export(folder: str, target: str, layout: str) -> tuple[int, list[str]]:
    """Write the samples of a folder of shards (path or URL) into the new folder ``target``; returns how many, and the metadata files.

    Memory grows with the number of samples, not with their images. Raises ``ValueError`` when ``target`` is a URL or holds something, and
    when the shards are not finished or damaged; then there is no ``target``.
    """
    if "://" in target:
        raise ValueError(f"{target} is a URL; trainers that read files need a local folder")
    place = Path(target).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{target} exists and is not an empty folder; choose another")
    partial = storage.partial_folder(place)
    try:
        extracted = [_extract(sample, partial) for sample in shard_reading.samples(folder.rstrip("/"))]
        metadata = FORMATS[layout](extracted, place)
        for name, text in metadata.items():
            (partial / name).write_text(text, encoding="utf-8")
        os.sync()  # tens of thousands of files: flushing each would take longer than writing them
        storage.replace_folder(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(extracted), [str(place / name) for name in metadata]


def _extract(sample: shard_reading.Stored, folder: Path) -> Extracted:
    paths = []
    for role, data, extension in (
        ("source", sample.source, sample.source_extension),
        ("edited", sample.edited, sample.edited_extension),
    ):
        (folder / role).mkdir(exist_ok=True)
        path = f"{role}/{sample.sample_id}.{extension}"
        (folder / path).write_bytes(data)
        paths.append(path)
    return Extracted(sample.sample_id, sample.facts["instruction"], *paths, sample.facts["licence"], sample.facts["selection"]["rank"])
