"""Training checkpoints that a killed run can be resumed from, exactly.

In: a tree of tensors, whole or sharded over workers, and notes in plain values. Out: a folder that torch.distributed.checkpoint reads, at
any number of workers, each of which wrote its part; on several machines the folder must be on a file system that all of them see.

A checkpoint is written beside its final name, synced and renamed. It lists the hashes of its files, and its name carries the step and
the hash of that list, so an incomplete or damaged one is recognised. The newest few are kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from reward.trainer.workers import rank_and_world

log = logging.getLogger(__name__)

CONTENTS = "contents.json"
"""File of a checkpoint with its notes and the hashes of all other files."""
UNFINISHED = ".unfinished"
_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})")


def save_checkpoint(directory: Path, step: int, state: dict[str, Any], *, notes: Mapping[str, Any] | None = None, keep: int = 2) -> None:
    """Write the state after `step` steps, then remove all but the newest `keep`. Every worker calls it with its part of the state.

    notes: plain values (JSON), those of the first worker count.
    """
    rank, world = rank_and_world()
    unfinished = directory / f"step-{step:08d}{UNFINISHED}"
    if rank == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
    if world > 1:
        dist.barrier()
    with _quiet():
        dcp.save(state, checkpoint_id=unfinished, no_dist=world == 1)
    hashes = [{path.name: _digest(path) for path in sorted(unfinished.glob(f"__{rank}_*"))}]
    if world > 1:
        everyones: list[Any] = [None] * world
        dist.all_gather_object(everyones, hashes[0])
        hashes = everyones
    if rank == 0:
        files = {name: digest for part in hashes for name, digest in part.items()} | {".metadata": _digest(unfinished / ".metadata")}
        _publish(unfinished, step, {"files": files, "notes": dict(notes or {})}, keep)
    if world > 1:
        dist.barrier()


def newest_sound_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint whose content is what was written; damaged ones are passed over with a warning."""
    for path in _found(directory):
        if _is_sound(path):
            return path
        log.warning("checkpoint %s is damaged: falling back to the one before it", path)
    return None


def read_notes(path: Path) -> dict[str, Any]:
    """The notes that a checkpoint was saved with."""
    return json.loads((path / CONTENTS).read_bytes())["notes"]


def load_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Fill a state of the same structure, in place; tensors that are sharded take their share. Every worker calls it."""
    with _quiet():
        dcp.load(state, checkpoint_id=path, no_dist=rank_and_world()[1] == 1)


def _publish(unfinished: Path, step: int, contents: dict[str, Any], keep: int) -> None:
    """Give a complete folder its name, and remove what it supersedes."""
    data = json.dumps(contents, sort_keys=True).encode()
    with open(unfinished / CONTENTS, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path = unfinished.with_name(f"step-{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}")
    shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same content
    unfinished.rename(path)
    directory = path.parent
    earlier = [other for other in _found(directory) if other.name[:13] < path.name[:13]]
    kept = [path, *earlier[: keep - 1]]
    for other in directory.iterdir():
        if other not in kept and (_NAME.fullmatch(other.name) or other.suffix == UNFINISHED):
            shutil.rmtree(other)


def _is_sound(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    try:
        if _digest(path / CONTENTS)[:16] != match[2]:
            return False
        files = json.loads((path / CONTENTS).read_bytes())["files"]
        return all(_digest(path / name) == digest for name, digest in files.items())
    except OSError:
        return False


def _found(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress the warning that a single process saves or loads, which is intended here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield
