"""Training checkpoints that a killed run can be resumed from, exactly: what a folder of them is, and how they are found and read.

In: a folder that `reward.trainer.checkpoint_writer` wrote to. Out: a tree of tensors, whole or sharded over workers, at any number of
workers, and notes in plain values. On several machines the folder must be on a file system that all of them see.

A checkpoint is written beside its final name, synced and renamed. It lists the hashes of its files, and its name carries the step and
the hash of that list, so an incomplete or damaged one is recognised.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from reward.trainer.workers import all_say, rank_and_world

log = logging.getLogger(__name__)

CONTENTS = "contents.json"
"""File of a checkpoint with its notes and the hashes of all other files."""
UNFINISHED = ".unfinished"
_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})")


def newest_sound_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint whose content is what was written; damaged ones are passed over with a warning.

    Every worker calls it: each hashes a share of the files, and all get the same answer.
    """
    found = [finished(directory)]
    if rank_and_world()[1] > 1:
        dist.broadcast_object_list(found)
    for path in found[0]:
        if all_say(_is_sound(path)):
            return path
        log.warning("checkpoint %s is damaged: falling back to the one before it", path)
    return None


def read_notes(path: Path) -> dict[str, Any]:
    """The notes that a checkpoint was saved with."""
    return json.loads((path / CONTENTS).read_bytes())["notes"]


def load_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Fill a state of the same structure, in place; tensors that are sharded take their share. Every worker calls it."""
    no_warning_of_one_process()
    dcp.load(state, checkpoint_id=path, no_dist=rank_and_world()[1] == 1)


def unfinished_folder(directory: Path, step: int) -> Path:
    """Where the checkpoint of a step is written until it is complete."""
    return directory / f"step-{step:08d}{UNFINISHED}"


def publish(unfinished: Path, files: Mapping[str, str], notes: Any, *, keep: int) -> None:
    """Give a complete folder its name, and remove all finished ones but the newest `keep`. files: sha256 by name."""
    data = json.dumps({"files": dict(files), "notes": notes}, sort_keys=True).encode()
    with open(unfinished / CONTENTS, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    step = unfinished.name.removesuffix(UNFINISHED)
    path = unfinished.with_name(f"{step}-{hashlib.sha256(data).hexdigest()[:16]}")
    shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same content
    unfinished.rename(path)
    directory = path.parent
    earlier = [other for other in finished(directory) if other.name[: len(step)] < step]
    kept = [path, *earlier[: keep - 1]]
    for other in directory.iterdir():
        if other not in kept and (_NAME.fullmatch(other.name) or other.suffix == UNFINISHED):
            shutil.rmtree(other)


def make_room(unfinished: Path, needed: int) -> None:
    """Remove what a kill left unfinished; then, as long as the disk has less than `needed` bytes, old checkpoints.

    The newest of an earlier step always stays.
    """
    for left in unfinished.parent.glob(f"*{UNFINISHED}"):
        if left != unfinished:
            shutil.rmtree(left)
    step = unfinished.name.removesuffix(UNFINISHED)
    found = finished(unfinished.parent)
    spared = next((path for path in found if path.name[: len(step)] < step), None)
    for path in reversed(found):
        if shutil.disk_usage(unfinished.parent).free >= needed:
            return
        if path != spared:
            log.warning("the disk has no room for another checkpoint of %.1f GB: %s is removed", needed / 1e9, path)
            shutil.rmtree(path)


def finished(directory: Path) -> list[Path]:
    """Complete checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def no_warning_of_one_process() -> None:
    """Suppress the warning that a single process saves or loads, which is intended here."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


def _is_sound(path: Path) -> bool:
    """Whether the list of files, and this worker's share of them, are what was written."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    rank, world = rank_and_world()
    try:
        if _digest(path / CONTENTS)[:16] != match[2]:
            return False
        files = sorted(json.loads((path / CONTENTS).read_bytes())["files"].items())
        return all(_digest(path / name) == digest for name, digest in files[rank::world])
    except OSError:
        return False


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
