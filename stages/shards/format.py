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

from stages.engine import hashed_files, images, storage, tar
from stages.engine.contracts import DIMENSION_SCORE, dimension_scores
from stages.engine.prefetch import prefetch

Part = tuple[str, str]
"""A member by sample id and kind (one of PARTS)."""

FORMAT = 2
"""Of what is written. Format 1, which is read as well, has neither a checksum in the index nor what came in with the edits in the JSON."""
INDEX, SAMPLES = "index.json", "samples.parquet"
PARTS = ("source", "edited", "json")
"""Members of a sample, in their order in the tar."""
AHEAD = 4
"""Samples that are read before they are written."""
REMEDY = "restore it, or write the shards again"
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
        digest = hashlib.sha256(text).hexdigest()
        rows.append(_index_row(sample.sample_id, shard, sample.facts, sample.source_sha256, sample.edited_sha256, digest))
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
    plain = storage.read_json(path, REMEDY)
    index = storage.read_checked(path, REMEDY)
    if index.get("format") not in (1, FORMAT):
        raise ValueError(f"{path} has format {index.get('format')}; this program reads the formats 1 and {FORMAT}; {REMEDY}")
    try:
        listed = [Shard(**shard) for shard in index["shards"]]
        figures = {
            "samples": (index["rows"], sum(shard.rows for shard in listed)),
            "bytes": (index["bytes"], sum(shard.bytes for shard in listed)),
            f"rows of {SAMPLES}": (index["samples"]["rows"], index["rows"]),
            "shards of different names": (len(listed), len({shard.name for shard in listed})),
        }
        whole = isinstance(index["samples"]["sha256"], str) and (index["format"] == 1 or storage.CHECKSUM in plain)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}); {REMEDY}") from None
    wrong = [f"{said} {name}, its entries add up to {found}" for name, (said, found) in figures.items() if said != found]
    if wrong or not whole:
        raise ValueError(f"{path} is damaged: it {f'says {wrong[0]}' if wrong else 'has no checksum'}; {REMEDY}")
    return index


def verify(folder: str) -> list[str]:
    """What is wrong with a folder of shards (path or URL), one sentence per problem; empty when everything is as it was written.

    Raises ``UnknownLocation`` for a URL that nothing here reads.
    """
    folder = str(folder).rstrip("/")
    try:
        index = read_index(folder)
    except storage.UnknownLocation:
        raise
    except ValueError as error:
        return [str(error)]
    filesystem, path = storage.locate(folder)
    listed = {shard["name"]: Shard(**shard) for shard in index["shards"]}
    present = {name.rstrip("/").rsplit("/", 1)[-1] for name in filesystem.ls(path, detail=False)}
    problems = [f"{name} is not listed in {INDEX}" for name in sorted(present) if name.endswith(".tar") and name not in listed]
    sample_index, faults = read_sample_index(folder, index, present)
    problems += faults
    absent = [f"{name} is missing" for name in listed if name not in present]
    with ThreadPoolExecutor(min(VERIFIERS, os.cpu_count() or 1)) as threads:  # reading and hashing run outside the interpreter's lock
        found = threads.map(
            lambda shard: _verify_shard(folder, shard, expected_rows(sample_index, shard.name)),
            [shard for name, shard in listed.items() if name in present],
        )
    return problems + absent + [problem for entry in found for problem in entry]


class _Hashing(io.RawIOBase):
    """A stream that hashes what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest, self.size = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data


def _verify_shard(folder: str, shard: Shard, rows: dict[str, dict[str, Any]] | None) -> list[str]:
    """Problems of one tar; ``rows``: of ``samples.parquet`` by sample, None when it cannot be read."""
    found: set[Part] = set()
    problems: list[str] = []
    expected = None if rows is None else expected_members(rows)
    filesystem, path = storage.locate(f"{folder}/{shard.name}")
    with filesystem.open(path, "rb") as opened:
        file: Any = _Hashing(opened)
        try:
            for member, blocks in tar.read(file):
                digest, text = hashlib.sha256(), b""
                sample_id, _, suffix = member.name.partition(".")
                part = (sample_id, suffix.partition(".")[0])
                for block in blocks:
                    digest.update(block)
                    text += block if part[1] == "json" else b""
                fault = _member_fault(part, digest.hexdigest(), found, expected)
                if fault is None and rows is not None and part[1] == "json":
                    fault = _figure_fault(sample_id, shard.name, text, rows[sample_id])
                found.add(part)
                if fault:
                    problems.append(f"{shard.name}: {member.name} at byte {member.offset} {fault}")
            problems += [f"{shard.name} lacks {sample_id}.{part}" for sample_id, part in sorted((expected or {}).keys() - found)]
            if len(found) != shard.rows * len(PARTS) and not problems:
                problems.append(f"{shard.name} has {len(found)} members, {INDEX} says {shard.rows} samples of {len(PARTS)}")
        except tar.Damaged as error:
            problems.append(f"{shard.name} {error} (after {len(found)} of {shard.rows * len(PARTS)} whole members)")
        while file.read(1 << 20):
            pass
    size = file.size
    if file.digest.hexdigest() != shard.sha256 and not problems:
        return [f"{shard.name}: its sha256 differs from {INDEX}, though every image is sound: a header or a json member was changed"]
    return problems or ([f"{shard.name} has {size} bytes, {INDEX} says {shard.bytes}"] if size != shard.bytes else [])


def _member_fault(part: Part, sha256: str, found: set[Part], expected: dict[Part, str] | None) -> str | None:
    if part in found:
        return "occurs twice"
    if expected is None:
        return None
    if part not in expected:
        return f"is not listed in {SAMPLES}"
    return None if sha256 == expected[part] else "was changed: its sha256 differs"


def _figure_fault(sample_id: str, shard: str, text: bytes, row: Mapping[str, Any]) -> str | None:
    """The first figure of a row of ``samples.parquet`` that is not the one in the sample's JSON."""
    try:
        facts = json.loads(text)
        made = _index_row(sample_id, shard, facts, facts["sha256"]["source"], facts["sha256"]["edited"], hashlib.sha256(text).hexdigest())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"cannot be read ({type(error).__name__}: {error})"
    wrong = [name for name in SAMPLE_INDEX.names if _plain(made[name]) != _plain(row[name])]
    return f"says {wrong[0]} {made[wrong[0]]!r}, {SAMPLES} says {row[wrong[0]]!r}" if wrong else None


def _plain(value: Any) -> Any:
    """A value whose order says nothing: dimensions are a list in the table and an object in the JSON."""
    return sorted(value, key=lambda entry: entry["dimension"]) if isinstance(value, list) else value


def read_sample_index(folder: str, index: Mapping[str, Any], present: set[str]) -> tuple[pa.Table | None, list[str]]:
    """``samples.parquet``, or None and what is wrong with it or with what it says of the shards.

    index: as :func:`read_index` gives it. present: names of the files in the folder.
    """
    if SAMPLES not in present:
        return None, [f"{SAMPLES} is missing"]
    data = storage.read_bytes(f"{folder}/{SAMPLES}")
    if hashlib.sha256(data).hexdigest() != index["samples"]["sha256"]:
        return None, [f"{SAMPLES} was changed: its sha256 differs from {INDEX}"]
    table = pq.read_table(io.BytesIO(data))
    rows = {shard["name"]: shard["rows"] for shard in index["shards"]}
    there = {entry["values"]: entry["counts"] for entry in pc.value_counts(table["shard"]).to_pylist()}
    problems = [
        f"{INDEX} says {rows.get(name, 0)} samples in {name}, {SAMPLES} lists {there.get(name, 0)}"
        for name in sorted(rows.keys() | there.keys())
        if rows.get(name, 0) != there.get(name, 0)
    ]
    return (None, problems) if problems else (table, [])


def expected_rows(sample_index: pa.Table | None, shard: str) -> dict[str, dict[str, Any]] | None:
    """Rows of ``samples.parquet`` of one shard by sample; None where it cannot be read."""
    if sample_index is None:
        return None
    return {row["sample_id"]: row for row in sample_index.filter(pc.equal(sample_index["shard"], shard)).to_pylist()}


def expected_members(rows: Mapping[str, Mapping[str, Any]]) -> dict[Part, str]:
    """sha256 by member of the samples of rows of ``samples.parquet``."""
    return {(sample_id, part): row[f"{part}_sha256"] for sample_id, row in rows.items() for part in PARTS}


def _json(sample: Sample) -> bytes:
    """The json member; sorted keys, so that equal facts are equal bytes."""
    sha256 = {"source": sample.source_sha256, "edited": sample.edited_sha256}
    content = {**sample.facts, "sample_id": sample.sample_id, "sha256": sha256}
    return (json.dumps(content, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _index_row(
    sample_id: str, shard: str, facts: Mapping[str, Any], source_sha256: str, edited_sha256: str, json_sha256: str
) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "shard": shard,
        "rank": facts["selection"]["rank"],
        "instruction": facts["instruction"],
        "overall_mean": facts["scores"]["overall"]["mean"],
        "overall_sigma": facts["scores"]["overall"]["sigma"],
        "dimensions": dimension_scores({name: score for name, score in facts["scores"].items() if name != "overall"}),
        "source_sha256": source_sha256,
        "edited_sha256": edited_sha256,
        "json_sha256": json_sha256,
    }
