"""A folder of shards compared with what its index and its sample index say, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.engine import storage, tar
from stages.shards.format import INDEX, Shard, read_index
from stages.shards.sample_index import PARTS, SAMPLE_INDEX, SAMPLES, Part, expected_members, index_row, open_sample_index

VERIFIERS = 8
"""Most shards that are verified at the same time."""


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
    listed = {shard["name"]: Shard(**shard) for shard in index["shards"]}
    present = {Path(entry["name"]).name for entry in storage.listed(folder)}
    local = storage.local(folder)
    odd = sorted(name for name in present & {*listed, SAMPLES} if local and not (local / name).is_file())
    present -= {*odd}
    problems = [f"{name} is no file: a folder or a device is there" for name in odd]
    problems += [f"{name} is not listed in {INDEX}" for name in sorted(present) if name.endswith(".tar") and name not in listed]
    samples, faults = open_sample_index(folder, index) if SAMPLES in present else (None, [f"{SAMPLES} is missing"])
    problems += faults
    problems += [f"{name} is missing" for name in listed if name not in present and name not in odd]
    parts = samples.by_shard() if samples else ((name, None) for name in listed)
    workers = min(VERIFIERS, os.cpu_count() or 1)
    pending: deque[Future[tuple[list[str], int]]] = deque()
    done: list[tuple[list[str], int]] = []
    with ThreadPoolExecutor(workers) as threads:  # reading and hashing run outside the interpreter's lock
        for name, rows in parts:
            if name in present:
                pending.append(threads.submit(_verify_shard, folder, listed[name], rows))
            if len(pending) > 2 * workers:
                done.append(pending.popleft().result())
        done += [shard.result() for shard in pending]
    problems += [problem for found, _ in done for problem in found]
    contaminated = sum(counted for _, counted in done)
    said = index.get("contamination", {}).get("samples", 0)
    if not problems and said != contaminated:
        problems.append(f"{INDEX} says that {said} samples count as contaminated; {contaminated} do by their JSON")
    return problems


def _verify_shard(folder: str, shard: Shard, listed: pa.Table | None) -> tuple[list[str], int]:
    """Problems of one tar, and how many of its samples count as contaminated; ``listed``: its rows of ``samples.parquet``, None when it
    cannot be read."""
    rows = None if listed is None else {row["sample_id"]: row for row in listed.to_pylist()}
    found: set[Part] = set()
    problems, contaminated = list[str](), 0
    expected = None if rows is None else expected_members(rows)
    with storage.open_file(f"{folder}/{shard.name}") as opened:
        file: Any = storage.HashedFile(opened)
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
                    fault, counted = _figure_fault(sample_id, shard.name, text, rows[sample_id])
                    contaminated += counted
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
    if file.digest.hexdigest() != shard.sha256 and not problems:
        problems = [f"{shard.name}: its sha256 differs from {INDEX}, though every image is sound: a header or a json member was changed"]
    elif file.size != shard.bytes and not problems:
        problems = [f"{shard.name} has {file.size} bytes, {INDEX} says {shard.bytes}"]
    return problems, contaminated


def _member_fault(part: Part, sha256: str, found: set[Part], expected: dict[Part, str] | None) -> str | None:
    if part in found:
        return "occurs twice"
    if expected is None:
        return None
    if part not in expected:
        return f"is not listed in {SAMPLES}"
    return None if sha256 == expected[part] else "was changed: its sha256 differs"


def _figure_fault(sample_id: str, shard: str, text: bytes, row: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The first figure of a row of ``samples.parquet`` that is not the one in the sample's JSON, and whether that counts the sample as
    contaminated."""
    try:
        facts = json.loads(text)
        counted = any(match["counted"] for match in facts.get("contamination", ()))
        made = index_row(sample_id, shard, facts, hashlib.sha256(text).hexdigest())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"cannot be read ({type(error).__name__}: {error})", False
    wrong = [name for name in SAMPLE_INDEX.names if _plain(made[name]) != _plain(row[name])]
    return f"says {wrong[0]} {made[wrong[0]]!r}, {SAMPLES} says {row[wrong[0]]!r}" if wrong else None, counted


def _plain(value: Any) -> Any:
    """A value whose order says nothing: dimensions are a list in the table and an object in the JSON."""
    return sorted(value, key=lambda entry: entry["dimension"]) if isinstance(value, list) else value
