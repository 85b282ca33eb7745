"""Webdataset shards: written deterministically, listed with hashes.

A folder of shards contains ``shard-000000.tar`` and so on with the members ``<sample_id>.source.<ext>``, ``<sample_id>.edited.<ext>`` and
``<sample_id>.json`` per sample; the sample index ``samples.parquet`` (one row per sample, in the order of the shards); and ``index.json``,
which is written last: a folder without it is incomplete. Images are the bytes that came in. The same samples give the same bytes on every
machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from stages.engine import hashed_files, images, storage, tar
from stages.engine.prefetch import prefetch
from stages.shards.sample_index import PARTS, SAMPLE_INDEX, SAMPLES, index_row

FORMAT = 2
"""Of what is written."""
INDEX = "index.json"
AHEAD = 4
"""Samples that are read before they are written."""
REMEDY = "restore it, or write the shards again"


@dataclass(frozen=True)
class Sample:
    """One sample: encoded images (PNG, JPEG or WebP) with their sha256, and the facts that go into the json member.

    ``facts`` has at least ``instruction``, ``scores`` (by dimension ``{mean, sigma, likert}``, and ``overall`` ``{mean, sigma}``) and
    ``selection`` (with ``rank``).
    """

    sample_id: str
    source: bytes
    source_sha256: str
    edited: bytes
    edited_sha256: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Shard:
    """A written tar."""

    name: str
    rows: int
    bytes: int
    sha256: str


def shard_name(number: int) -> str:
    """File name of the shard with this number."""
    return f"shard-{number:06d}.tar"


def write_shard(folder: str, name: str, samples: Iterable[Sample]) -> tuple[Shard, pa.Table]:
    """Write one shard (path or URL) and return its record and its rows of ``samples.parquet``.

    Samples are read ahead in a thread; at most ``AHEAD`` of them are held. What is written is hashed here: with a thread for that as well,
    two cores were slower.
    """
    rows: list[dict[str, Any]] = []
    with storage.publishing(f"{folder}/{name}") as file:
        file.writelines(_members(prefetch(samples, AHEAD), name, rows))
    return Shard(name, len(rows), file.size, file.digest.hexdigest()), pa.Table.from_pylist(rows, schema=SAMPLE_INDEX)


def _members(samples: Iterable[Sample], shard: str, rows: list[dict[str, Any]]) -> Iterator[bytes]:
    """The tar in small and large pieces; every sample's row of ``samples.parquet`` is appended to ``rows``."""
    for sample in samples:
        assert "." not in sample.sample_id, "readers of webdataset end a key at its first dot"
        sha256 = {"source": sample.source_sha256, "edited": sample.edited_sha256}
        facts = {**sample.facts, "sample_id": sample.sample_id, "sha256": sha256}
        # Keys are sorted, so that equal facts are equal bytes
        text = (json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()
        for part, data in zip(PARTS, (sample.source, sample.edited, text), strict=True):
            suffix = part if part == "json" else f"{part}.{images.extension(data)}"
            yield tar.header(f"{sample.sample_id}.{suffix}", len(data))
            yield data
            yield tar.padding(len(data))
        rows.append(index_row(sample.sample_id, shard, facts, hashlib.sha256(text).hexdigest()))
    yield tar.END


def publish(folder: str, shards: list[Shard], sample_index: pa.RecordBatchReader, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``samples.parquet`` and then ``index.json``, which makes the folder whole; returns the index."""
    rows, sha256 = storage.publish_rows(f"{folder}/{SAMPLES}", sample_index.schema, sample_index)
    index = {
        "format": FORMAT,
        "rows": rows,
        "bytes": sum(shard.bytes for shard in shards),
        "shards": [asdict(shard) for shard in shards],
        "samples": {"name": SAMPLES, "rows": rows, "sha256": sha256},
        **about,
    }
    storage.publish_checked(f"{folder}/{INDEX}", index)
    if local := storage.local(folder):
        hashed_files.remember(local, [(SAMPLES, sha256), *((shard.name, shard.sha256) for shard in shards)])
    return index


def require(folder: str) -> None:
    """Raise ``ValueError`` for a folder (path or URL) that is not a finished folder of shards."""
    filesystem, name = storage.locate(f"{folder}/{INDEX}")
    if not filesystem.exists(name):
        raise ValueError(
            f"{folder} has no {INDEX}: it was not finished, or is no folder of shards; name one, such as RUN/filter/shards/selected"
        )
    found = storage.read_json(f"{folder}/{INDEX}", REMEDY)
    if isinstance(found, dict) and not {"format", "shards"} & found.keys():
        raise ValueError(f"{folder}/{INDEX} is no index of shards; name a folder of shards, such as RUN/filter/shards/selected")


def read_index(folder: str) -> dict[str, Any]:
    """The index of a finished folder of shards, without its checksum.

    Raises ``ValueError`` when there is none, when it is damaged, and when its own figures contradict each other.
    """
    require(folder)
    path = f"{folder}/{INDEX}"
    index = storage.read_checked(path, REMEDY)
    if index.get("format") != FORMAT:
        raise ValueError(f"{path} has format {index.get('format')}; this program reads format {FORMAT}; write the shards again")
    try:
        listed = [Shard(**shard) for shard in index["shards"]]
        figures = {
            "samples": (index["rows"], sum(shard.rows for shard in listed)),
            "bytes": (index["bytes"], sum(shard.bytes for shard in listed)),
            f"rows of {SAMPLES}": (index["samples"]["rows"], index["rows"]),
            "shards of different names": (len(listed), len({shard.name for shard in listed})),
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}); {REMEDY}") from None
    wrong = [f"{said} {name}, its entries add up to {found}" for name, (said, found) in figures.items() if said != found]
    if wrong:
        raise ValueError(f"{path} is damaged: it says {wrong[0]}; {REMEDY}")
    return index
