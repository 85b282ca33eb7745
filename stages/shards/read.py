"""A folder of shards read back, sample by sample, with every member checked against ``samples.parquet``; and where a run has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stages.context import Context
from stages.engine import steps, storage, tar
from stages.engine.rundir import StepFolder
from stages.shards import format as shards
from stages.shards.config import ShardsConfig
from stages.shards.sample_index import PARTS, SAMPLES, Part, expected_members, open_sample_index


@dataclass(frozen=True)
class Stored:
    """A sample of a shard: encoded images, and the content of the json member."""

    sample_id: str
    source: bytes
    edited: bytes
    facts: dict[str, Any]


def folder_of(step: StepFolder, config: ShardsConfig, name: str) -> str:
    """Folder or URL of a selection's shards."""
    if config.target is None:
        return str(step.path / "shards" / name)
    return f"{storage.absolute(config.target).rstrip('/')}/{name}"


def folder_in(context: Context, name: str) -> str:
    """Folder or URL of the shards that the run's filter step wrote of a selection."""
    return folder_of(context.run.step(steps.FILTER), context.need("filter").shards, name)


def content_hash(folder: str) -> str:
    """Hash that names the content of a finished folder of shards."""
    return storage.sha256_of(f"{folder}/{shards.INDEX}")


def samples(folder: str) -> Iterator[Stored]:
    """All samples of a finished folder of shards (path or URL), in its order; one shard is open, one sample in memory.

    Raises ``ValueError`` naming the folder when it is not finished, and naming shard and place when something in it is damaged.
    """
    index = shards.read_index(folder)
    listed, faults = open_sample_index(folder, index)
    if listed is None:
        raise ValueError(f"{folder}: {faults[0]}; write the shards again")
    for name, rows in listed.by_shard():
        try:
            yield from _of_shard(folder, name, expected_members({row["sample_id"]: row for row in rows.to_pylist()}))
        except FileNotFoundError:
            raise ValueError(f"{folder}/{name} is missing; run `pipeline shards verify {folder}`") from None
        except tar.Damaged as error:
            raise ValueError(f"{folder}/{name} {error}; run `pipeline shards verify {folder}`") from None


def _of_shard(folder: str, name: str, expected: dict[Part, str]) -> Iterator[Stored]:
    found: dict[str, bytes] = {}
    left = dict(expected)
    with storage.open_file(f"{folder}/{name}") as file:
        for member, blocks in tar.read(file):
            data = b"".join(blocks)
            sample_id, _, suffix = member.name.partition(".")
            part = suffix.partition(".")[0]
            if left.pop((sample_id, part), None) != hashlib.sha256(data).hexdigest():
                raise tar.Damaged(f"contains another {member.name} at byte {member.offset} than its {SAMPLES} lists")
            found[part] = data
            if len(found) == len(PARTS):
                yield Stored(sample_id, found["source"], found["edited"], json.loads(found["json"]))
                found = {}
    if left or found:
        missing = sorted(f"{sample_id}.{part}" for sample_id, part in left) or sorted(found)
        raise tar.Damaged(f"lacks {missing[0]}")
