"""Edited pairs for training: uint8 arrays in memory, read from webdataset shards.

A shard is a tar file with the members `key.source.EXT`, `key.edited.EXT` and `key.json` (fields "instruction" and "sample_id")
per sample. Shards are read by the webdataset library, each checked first to be whole: a tar reader takes a shard that was cut
at a member's boundary for a complete one.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import numpy as np
from PIL import Image, ImageOps
from webdataset.handlers import reraise_exception
from webdataset.tariterators import group_by_keys, tar_file_expander

_TAR_END = 2 * 512  # a tar archive ends with two zero blocks


@dataclass(frozen=True)
class EditSamples:
    """n edits: source and edited uint8 [n, S, S, 3], one instruction and one id each."""

    source: np.ndarray
    edited: np.ndarray
    instructions: list[str]
    sample_ids: list[str]

    def __post_init__(self) -> None:
        n = len(self.source)
        square = self.source.ndim == 4 and self.source.shape[1] == self.source.shape[2] and self.source.shape[3] == 3
        if not square or self.source.dtype != np.uint8 or self.edited.dtype != np.uint8:
            raise ValueError(f"images must be uint8 [n, S, S, 3], got {self.source.dtype} {self.source.shape}")
        if self.edited.shape != self.source.shape or len(self.instructions) != n or len(self.sample_ids) != n:
            raise ValueError(
                f"source {self.source.shape}, edited {self.edited.shape}, {len(self.instructions)} instructions and "
                f"{len(self.sample_ids)} ids do not describe the same samples"
            )

    def __len__(self) -> int:
        return len(self.source)


def load_shards(urls: Sequence[str | Path], image_size: int) -> EditSamples:
    """Read whole shards (paths or fsspec URLs), in the given order, into memory.

    Images become RGB, upright by their EXIF orientation, and image_size squared: others are resized (bicubic) without keeping
    the aspect ratio, as source and edited must share one square grid. ValueError names the shard (and the sample) if a
    shard is damaged, a member is missing or not readable, or a sample_id comes twice.
    """
    source, edited, instructions, sample_ids = [], [], [], []
    first_shard: dict[str, str] = {}
    for url in map(str, urls):
        for sample in _samples(url):
            place = f"sample {sample['__key__']!r} of shard {url}"
            record = _record(sample, place)
            sample_id = record["sample_id"]
            if sample_id in first_shard:
                raise ValueError(f"{place} repeats sample_id {sample_id!r} of {first_shard[sample_id]}; give each shard once")
            first_shard[sample_id] = url
            source.append(_image(sample, "source", image_size, place))
            edited.append(_image(sample, "edited", image_size, place))
            instructions.append(record["instruction"])
            sample_ids.append(sample_id)
    if not source:
        raise ValueError(f"the {len(urls)} shards {[str(url) for url in urls][:3]} hold no samples")
    return EditSamples(np.stack(source), np.stack(edited), instructions, sample_ids)


def _samples(url: str) -> Iterator[dict[str, Any]]:
    """Samples of one shard as webdataset groups them: `__key__` and the bytes of each member by suffix."""
    try:
        with fsspec.open(url, "rb") as stream:
            _check_whole(stream)
            stream.seek(0)
            members = tar_file_expander([{"url": url, "stream": stream}], handler=reraise_exception)
            yield from list(group_by_keys(members, handler=reraise_exception))
    except FileNotFoundError as error:
        raise ValueError(f"shard {url} does not exist") from error
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise ValueError(f"shard {url} is damaged ({reason}); write it again") from error


def _check_whole(stream: BinaryIO) -> None:
    """tarfile.ReadError unless the members are followed by nothing but the end mark of a tar archive."""
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        archive.getmembers()
        end = archive.offset
    stream.seek(end)
    rest = stream.read()
    if len(rest) < _TAR_END or rest.strip(b"\0"):
        raise tarfile.ReadError(f"no end of archive at byte {end}")


def _record(sample: dict[str, Any], place: str) -> dict[str, str]:
    try:
        record = json.loads(sample["json"])
        values = {name: record[name] for name in ("instruction", "sample_id")}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place} has no json member with 'instruction' and 'sample_id' ({error})") from error
    for name, value in values.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place}: {name!r} in its json member must be a non-empty string, got {value!r}")
    return values


def _image(sample: dict[str, Any], role: str, size: int, place: str) -> np.ndarray:
    """One image member [size, size, 3] uint8."""
    names = [name for name in sample if name.startswith(f"{role}.")]
    if len(names) != 1:
        raise ValueError(f"{place} must have exactly one member '{role}.<extension>', it has {sorted(names)}")
    try:
        with Image.open(io.BytesIO(sample[names[0]])) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place}: its {role} image cannot be decoded ({error})") from error
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image)
