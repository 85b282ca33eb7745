"""Webdataset shards: written deterministically, listed with hashes, verified member by member.

A folder of shards contains ``shard-000000.tar`` and so on with the members ``<sample_id>.source.<ext>``, ``<sample_id>.edited.<ext>`` and
``<sample_id>.json`` per sample; the sample index ``samples.parquet`` (one row per sample, in the order of the shards); and ``index.json``,
which is written last: a folder without it is incomplete. Images are the bytes that came in. The same samples give the same bytes on every
machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.engine import images, storage, tar
from stages.engine.contracts import DIMENSION_SCORE, dimension_scores
from stages.engine.prefetch import prefetch

Part = tuple[str, str]
"""A member by sample id and kind (one of PARTS)."""

FORMAT = 1
INDEX, SAMPLES = "index.json", "samples.parquet"
PARTS = ("source", "edited", "json")
"""Members of a sample, in their order in the tar."""
AHEAD = 4
"""Samples that are read before they are written."""
VERIFIERS = 8
"""Most shards that are verified at the same time."""

SAMPLE_INDEX = pa.schema(
    [
        ("sample_id", pa.string()),
        ("shard", pa.string()),
        ("rank", pa.int64()),
        ("instruction", pa.string()),
        ("overall_mean", pa.float64()),
        ("overall_sigma", pa.float64()),
        ("dimensions", pa.list_(DIMENSION_SCORE)),
        ("source_sha256", pa.string()),
        ("edited_sha256", pa.string()),
        ("json_sha256", pa.string()),
    ]
)
"""Columns of ``samples.parquet``, the sample index: what the tars contain, without opening them."""


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
    digest, size = hashlib.sha256(), 0
    with storage.publishing(f"{folder}/{name}") as file:
        for piece in _members(prefetch(samples, AHEAD), name, rows):
            digest.update(piece)
            size += file.write(piece)
    return Shard(name, len(rows), size, digest.hexdigest()), pa.Table.from_pylist(rows, schema=SAMPLE_INDEX)


def _members(samples: Iterable[Sample], shard: str, rows: list[dict[str, Any]]) -> Iterator[bytes]:
    """The tar in small and large pieces; every sample's row of ``samples.parquet`` is appended to ``rows``."""
    for sample in samples:
        assert "." not in sample.sample_id, "readers of webdataset end a key at its first dot"
        text = _json(sample)
        for part, data in zip(PARTS, (sample.source, sample.edited, text), strict=True):
            suffix = part if part == "json" else f"{part}.{images.extension(data)}"
            yield tar.header(f"{sample.sample_id}.{suffix}", len(data))
            yield data
            yield tar.padding(len(data))
        rows.append(_index_row(sample, shard, hashlib.sha256(text).hexdigest()))
    yield tar.END


def publish(folder: str, shards: list[Shard], sample_index: pa.Table, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``samples.parquet`` and then ``index.json``, which makes the folder whole; returns the index."""
    sha256 = storage.publish_bytes(f"{folder}/{SAMPLES}", storage.table_bytes(sample_index))
    index = {
        "format": FORMAT,
        "rows": sample_index.num_rows,
        "bytes": sum(shard.bytes for shard in shards),
        "shards": [asdict(shard) for shard in shards],
        "samples": {"name": SAMPLES, "rows": sample_index.num_rows, "sha256": sha256},
        **about,
    }
    storage.publish_json(f"{folder}/{INDEX}", index)
    return index


def verify(folder: str) -> list[str]:
    """What is wrong with a folder of shards (path or URL), one sentence per problem; empty when everything is as it was written."""
    folder = str(folder).rstrip("/")
    filesystem, path = storage.locate(folder)
    if not filesystem.exists(f"{path}/{INDEX}"):
        return [f"{folder} has no {INDEX}: it was not finished, or is no folder of shards"]
    try:
        index = storage.read_json(f"{folder}/{INDEX}")
        listed = {shard["name"]: Shard(**shard) for shard in index["shards"]}
        samples, rows, form = index["samples"]["sha256"], index["rows"], index["format"]
    except (ValueError, KeyError, TypeError) as error:
        return [f"{INDEX} is damaged ({error})"]
    if form != FORMAT:
        return [f"{INDEX} has format {form}; this program verifies format {FORMAT}"]
    present = {name.rstrip("/").rsplit("/", 1)[-1] for name in filesystem.ls(path, detail=False)}
    problems = [f"{name} is not listed in {INDEX}" for name in sorted(present) if name.endswith(".tar") and name not in listed]
    if sum(shard.rows for shard in listed.values()) != rows:
        problems.append(f"{INDEX} says {rows} samples, its shards contain {sum(shard.rows for shard in listed.values())}")
    sample_index, faults = read_sample_index(folder, samples, present)
    problems += faults
    absent = [f"{name} is missing" for name in listed if name not in present]
    with ThreadPoolExecutor(min(VERIFIERS, os.cpu_count() or 1)) as threads:  # reading and hashing run outside the interpreter's lock
        found = threads.map(
            lambda shard: _verify_shard(folder, shard, expected_members(sample_index, shard.name)),
            [shard for name, shard in listed.items() if name in present],
        )
    return problems + absent + [problem for entry in found for problem in entry]


class _Hashing(io.RawIOBase):
    """A stream that hashes what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _verify_shard(folder: str, shard: Shard, expected: dict[Part, str] | None) -> list[str]:
    """Problems of one tar; ``expected``: sha256 by member, None when samples.parquet cannot be read."""
    found: set[Part] = set()
    problems: list[str] = []
    filesystem, path = storage.locate(f"{folder}/{shard.name}")
    with filesystem.open(path, "rb") as opened:
        file: Any = _Hashing(opened)
        try:
            for member, blocks in tar.read(file):
                digest = hashlib.sha256()
                for block in blocks:
                    digest.update(block)
                sample_id, _, suffix = member.name.partition(".")
                part = (sample_id, suffix.partition(".")[0])
                fault = _member_fault(part, digest.hexdigest(), found, expected)
                found.add(part)
                if fault:
                    problems.append(f"{shard.name}: {member.name} at byte {member.offset} {fault}")
            problems += [f"{shard.name} lacks {sample_id}.{part}" for sample_id, part in sorted((expected or {}).keys() - found)]
        except tar.Damaged as error:
            problems.append(f"{shard.name} {error} (after {len(found)} of {shard.rows * len(PARTS)} whole members)")
        while file.read(1 << 20):
            pass
    if file.digest.hexdigest() != shard.sha256 and not problems:
        return [f"{shard.name}: its sha256 differs from {INDEX}, though every image is sound: a header or a json member was changed"]
    return problems


def _member_fault(part: Part, sha256: str, found: set[Part], expected: dict[Part, str] | None) -> str | None:
    if part in found:
        return "occurs twice"
    if expected is None:
        return None
    if part not in expected:
        return f"is not listed in {SAMPLES}"
    return None if sha256 == expected[part] else "was changed: its sha256 differs"


def read_sample_index(folder: str, sha256: str, present: set[str]) -> tuple[pa.Table | None, list[str]]:
    """``samples.parquet``, or None and what is wrong with it; ``present``: names of the files in the folder."""
    if SAMPLES not in present:
        return None, [f"{SAMPLES} is missing"]
    data = storage.read_bytes(f"{folder}/{SAMPLES}")
    if hashlib.sha256(data).hexdigest() != sha256:
        return None, [f"{SAMPLES} was changed: its sha256 differs from {INDEX}"]
    return pq.read_table(io.BytesIO(data)), []


def expected_members(sample_index: pa.Table | None, shard: str) -> dict[Part, str] | None:
    """sha256 by member of one shard; None where ``samples.parquet`` cannot be read."""
    if sample_index is None:
        return None
    columns = ["sample_id", *(f"{part}_sha256" for part in PARTS)]
    rows = sample_index.filter(pc.equal(sample_index["shard"], shard)).select(columns).to_pylist()
    return {(row["sample_id"], part): row[f"{part}_sha256"] for row in rows for part in PARTS}


def _json(sample: Sample) -> bytes:
    """The json member; sorted keys, so that equal facts are equal bytes."""
    sha256 = {"source": sample.source_sha256, "edited": sample.edited_sha256}
    content = {**sample.facts, "sample_id": sample.sample_id, "sha256": sha256}
    return (json.dumps(content, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _index_row(sample: Sample, shard: str, json_sha256: str) -> dict[str, Any]:
    facts = sample.facts
    return {
        "sample_id": sample.sample_id,
        "shard": shard,
        "rank": facts["selection"]["rank"],
        "instruction": facts["instruction"],
        "overall_mean": facts["scores"]["overall"]["mean"],
        "overall_sigma": facts["scores"]["overall"]["sigma"],
        "dimensions": dimension_scores({name: score for name, score in facts["scores"].items() if name != "overall"}),
        "source_sha256": sample.source_sha256,
        "edited_sha256": sample.edited_sha256,
        "json_sha256": json_sha256,
    }
