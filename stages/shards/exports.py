"""Exporters to trainers that read files instead of tars: the images of a folder of shards as files, and the metadata that a trainer reads.

Image files are ``source/<sample_id>.<ext>`` and ``edited/<sample_id>.<ext>`` with the bytes of the shards. Every member is checked while it
is read; the folder is built under another name and renamed when it is complete. The same shards and the same target give the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine import images, storage
from stages.shards import read as shard_reading

SAMPLES = "samples.jsonl"
"""Beside the metadata of every format: the JSON of each sample as the shards have it, and where its images are in the export."""


Extracted = Mapping[str, Any]
"""A sample whose images are files: its JSON as the shards have it, and as ``images`` their paths below the export's folder."""


class Metadata(NamedTuple):
    """A metadata file: ``begin``, a text per sample with ``between`` them, and ``end``. Written as the samples come."""

    text: Callable[[Extracted], str]
    begin: str = ""
    between: str = ""
    end: str = ""


def step1x(folder: Path) -> dict[str, Metadata]:
    """``metadata.json`` of Step1X-Edit's trainer (made from kohya's scripts): one object from target path to source path and caption.

    It goes into the trainer's data configuration as ``metadata_file``, ``edited/`` as ``image_dir``, with ``edit_dataset = true``. The
    trainer looks its images up by these keys, so they are absolute paths; it puts its caches beside the images.
    """

    def entry(sample: Extracted) -> str:
        source, edited = (str(folder / sample["images"][role]) for role in ("source", "edited"))
        content = {edited: {"ref_image_path": source, "caption": sample["instruction"]}}
        return json.dumps(content, indent=1, ensure_ascii=False).removeprefix("{\n").removesuffix("\n}")

    return {"metadata.json": Metadata(entry, "{\n", ",\n", "\n}\n")}


def imagefolder(_: Path) -> dict[str, Metadata]:
    """``metadata.jsonl`` of the ImageFolder layout of Hugging Face ``datasets``, with the columns that diffusers' InstructPix2Pix trainer
    reads by default.

    ``input_image_file_name`` becomes the image column ``input_image``, and ``edited_image`` is made in the same way. Paths are relative, so
    the folder can be moved.
    """

    def row(sample: Extracted) -> str:
        return _line(
            {
                "input_image_file_name": sample["images"]["source"],
                "edit_prompt": sample["instruction"],
                "edited_image_file_name": sample["images"]["edited"],
                "sample_id": sample["sample_id"],
                "rank": sample["selection"]["rank"],
                "licence": sample["licence"],
            }
        )

    return {"metadata.jsonl": Metadata(row)}


def omnigen2(folder: Path) -> dict[str, Metadata]:
    """OmniGen2's ``train.jsonl``, and ``data.yml``, the list of such files.

    ``data.yml`` goes into the training configuration as ``data.data_path``. The trainer opens images by these paths as they are, so they
    are absolute.
    """

    def row(sample: Extracted) -> str:
        return _line(
            {
                "task_type": "edit",
                "instruction": sample["instruction"],
                "input_images": [str(folder / sample["images"]["source"])],
                "output_image": str(folder / sample["images"]["edited"]),
                "sample_id": sample["sample_id"],
                "licence": sample["licence"],
            }
        )

    path = json.dumps(str(folder / "train.jsonl"), ensure_ascii=False)
    return {
        "data.yml": Metadata(lambda _: "", begin=f"data:\n  - path: {path}\n    type: edit\n    ratio: 1.0\n"),
        "train.jsonl": Metadata(row),
    }


FORMATS: dict[str, Callable[[Path], dict[str, Metadata]]] = {
    "step1x": step1x,
    "imagefolder": imagefolder,
    "omnigen2": omnigen2,
}
"""Per format: metadata files by name; the path is that of the finished folder."""


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def export(folder: str, target: str, layout: str) -> tuple[int, list[str]]:
    """Write the samples of a folder of shards (path or URL) into the new folder ``target``; returns how many, and the metadata files.

    One sample is in memory. Raises ``ValueError`` when ``target`` is a URL or contains something,
    and when the shards are not finished or damaged; then there is no ``target``.
    """
    if "://" in target:
        raise ValueError(f"{target} is a URL; trainers that read files need a local folder")
    place = Path(target).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{target} exists and is not an empty folder; choose another")
    partial = storage.partial_folder(place)
    try:
        count, metadata = 0, FORMATS[layout](place)
        with ExitStack() as opened:
            lines, *written = (opened.enter_context(open(partial / name, "w", encoding="utf-8")) for name in (SAMPLES, *metadata))
            for file, of_file in zip(written, metadata.values(), strict=True):
                file.write(of_file.begin)
            for count, sample in enumerate(shard_reading.samples(folder.rstrip("/")), 1):
                made = _extract(sample, partial)
                lines.write(_line(made))
                for file, of_file in zip(written, metadata.values(), strict=True):
                    file.write((of_file.between if count > 1 else "") + of_file.text(made))
            for file, of_file in zip(written, metadata.values(), strict=True):
                file.write(of_file.end)
        os.sync()  # tens of thousands of files: flushing each of them would take longer than writing it
        storage.replace_folder(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return count, [str(place / name) for name in metadata]


def _extract(sample: shard_reading.Stored, folder: Path) -> Extracted:
    paths = {}
    for role, data in (("source", sample.source), ("edited", sample.edited)):
        (folder / role).mkdir(exist_ok=True)
        paths[role] = f"{role}/{sample.sample_id}.{images.extension(data)}"
        (folder / paths[role]).write_bytes(data)
    return {**sample.facts, "images": paths}
