"""The lease of a folder of shards: a file that names the run that writes there, so that two runs never write one set together.

The lease is taken before anything in the folder changes, checked again before the index is published, and then removed. After a kill it
stays: the same run goes on with it, another run is refused. Local files and object stores with conditional writes (S3) create it in one
step; elsewhere it is written and read again, and the check before publishing notices what that cannot see.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from stages.engine import storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import StepFolder

NAME = "lease.json"
OWNER = "lease-owner"
"""File in the step's folder with a number of the run: paths of runs on two machines may be the same."""


@dataclass(frozen=True)
class Owner:
    """A run: a name that no other run has, and where to find it."""

    name: str
    run: str
    host: str


def owner_of(step: StepFolder) -> Owner:
    """The run as an owner of leases. Its name is made of a number drawn once and of its path, so that a copy of it is another run."""
    path, run = step.path / OWNER, str(step.path.parent.resolve())
    if not path.exists():
        storage.publish_bytes(path, uuid.uuid4().hex.encode())
    return Owner(settings_hash(path.read_text(errors="replace"), run), run, os.uname().nodename)


def take(folder: str, owner: Owner) -> None:
    """Take the lease of a folder (path or URL). Raises ``ValueError`` naming the run that has it."""
    data = json.dumps(asdict(owner)).encode()
    with suppress(FileExistsError):
        _create(f"{folder}/{NAME}", data)
    check(folder, owner)


def check(folder: str, owner: Owner) -> None:
    """Raise ``ValueError`` when the lease is another run's, or gone."""
    path = f"{folder}/{NAME}"
    try:
        held = json.loads(storage.read_bytes(path))
        mine, by = held["name"] == owner.name, f"run {held['run']} on {held['host']}"
    except FileNotFoundError:
        raise ValueError(f"{path} was removed while this run wrote its shards there; run again when no other run writes there") from None
    except (ValueError, KeyError, TypeError):
        mine, by = False, "a run that it does not name, because it is damaged"
    if not mine:
        raise ValueError(f"{folder} is being written by {by}: choose another target; if that run will not go on, delete {path}")


def release(folder: str, owner: Owner) -> None:
    """Give the lease back. Raises ``ValueError`` when it is another run's."""
    check(folder, owner)
    filesystem, path = storage.locate(f"{folder}/{NAME}")
    filesystem.rm(path)


def release_left(folder: str, owner: Owner) -> None:
    """Give back a lease that this run left in a finished folder, killed between publishing and giving it back."""
    with suppress(ValueError):  # there is none, or it is another run's, which replaces these shards
        release(folder, owner)


def _create(path: str, data: bytes) -> None:
    """Write a new file; raises ``FileExistsError`` where there is one."""
    filesystem, name = storage.locate(path)
    filesystem.invalidate_cache()
    if not isinstance(filesystem, LocalFileSystem):
        if filesystem.exists(name):
            raise FileExistsError(path)
        filesystem.pipe_file(name, data, mode="create")
        return
    target = Path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{storage.TEMPORARY}{uuid.uuid4().hex}")
    partial.write_bytes(data)
    try:
        os.link(partial, target)  # whole or not at all, and never over another
    finally:
        partial.unlink()
