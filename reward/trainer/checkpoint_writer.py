"""Writing checkpoints while the training goes on.

In: a tree of tensors, whole or sharded over workers, and notes in plain values. Out: checkpoints (`reward.trainer.checkpoints`).

`save` copies the tensors to the memory of the host; a thread writes them, hashing what it writes, and gives the checkpoint its name when
all workers are through. One is written at a time. What fails in the thread is raised at the next step.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from reward.trainer.checkpoints import make_room, no_warning_of_one_process, publish, unfinished_folder
from reward.trainer.workers import first_says, rank_and_world

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""How long a training waits for a checkpoint that is being written when the next one is due."""
_LONGEST = timedelta(days=1)
"""How long a worker waits for the others to write. One that died ends the wait at once."""


class CheckpointWriter:
    """Writes the checkpoints of one training. Every worker has one, and calls its methods at the same steps.

    sharded: each worker writes its part of the state; else the first one writes all of it. As a context manager it waits, at the end, for
    what is being written.
    """

    def __init__(self, directory: Path, *, keep: int, sharded: bool) -> None:
        rank, world = rank_and_world()
        self._directory, self._keep, self._rank = directory, keep, rank
        self._writes = sharded or rank == 0
        self._group = dist.new_group(backend="gloo", timeout=_LONGEST) if sharded and world > 1 else None
        self._parts = world if self._group is not None else 1
        self._thread = ThreadPoolExecutor(1)
        self._running: tuple[int, Future[None]] | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._group is not None:
            dist.destroy_process_group(self._group)

    def is_busy(self) -> bool:
        """Whether the first worker is still writing a checkpoint, after GRACE_SECONDS; the same answer for all."""
        if self._running is not None:
            wait([self._running[1]], timeout=GRACE_SECONDS)
        busy = first_says(self._running is not None and not self._running[1].done())
        if busy and self._running is not None and self._rank == 0:
            log.warning("step %d is still being written when the next checkpoint is due, which is left out", self._running[0])
        return busy

    def save(self, step: int, state: dict[str, Any], notes: Mapping[str, Any]) -> None:
        """Begin to write the state after `step` steps; it may change as soon as this returns. notes: of the first worker, plain values."""
        self.wait()
        if not self._writes:
            return
        no_warning_of_one_process()
        writer = dcp.FileSystemWriter(unfinished_folder(self._directory, step))
        writer.fs = files = _HashedFiles()
        staged = writer.stage(state)
        plain = json.loads(json.dumps(dict(notes)))  # a copy, too
        self._running = step, self._thread.submit(self._write, writer, files, staged, plain)

    def check(self) -> None:
        """Raise ValueError when the checkpoint that was being written failed."""
        if self._running is not None and self._running[1].done():
            self.wait()

    def wait(self) -> None:
        """Wait until what is being written is complete. Raises ValueError when that fails."""
        if self._running is None:
            return
        (step, future), self._running = self._running, None
        try:
            future.result()
        except (Exception, CheckpointException) as error:  # the second is no `Exception`
            raise ValueError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({_reason(error)}); see to the disk and run the "
                "command again: it resumes from the checkpoint before"
            ) from error

    def _write(self, writer: dcp.FileSystemWriter, files: _HashedFiles, staged: dict[str, Any], notes: Any) -> None:
        unfinished = Path(writer.path)
        size = sum(_local(leaf).nbytes for leaf in tree_leaves(staged) if isinstance(leaf, Tensor))

        def begin() -> None:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make_room(unfinished, size * self._parts)

        self._by_first(begin)
        dcp.save(staged, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
        digests: list[Any] = [files.digests]
        if self._group is not None:
            digests *= self._parts
            dist.all_gather_object(digests, files.digests, group=self._group)
        listed = {name: digest for part in digests for name, digest in part.items()}
        self._by_first(lambda: publish(unfinished, listed, notes, keep=self._keep))

    def _by_first(self, work: Callable[[], None]) -> None:
        """The first worker does it, the others wait. What it raises, all raise."""
        failure: list[Exception | None] = [None]
        if self._rank == 0:
            try:
                work()
            except Exception as error:
                failure[0] = error
        if self._group is not None:
            dist.broadcast_object_list(failure, group=self._group)
        if failure[0] is not None:
            raise failure[0]


class _HashedFiles(FileSystem):
    """Files that are hashed while they are written. digests: sha256 by name."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase]:
        """A file to write to."""
        with super().create_stream(path, mode) as stream:
            hashed = _HashedStream(cast(io.BufferedWriter, stream))
            yield hashed
        self.digests[Path(path).name] = hashed.digest.hexdigest()

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Give a file another name."""
        super().rename(path, new_path)
        self.digests[Path(new_path).name] = self.digests.pop(Path(path).name)


class _HashedStream(io.BufferedIOBase):
    """A file, written from its beginning to its end, and the hash of what was written."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        """For a sync to the disk, so nothing may be left in memory."""
        self._file.flush()
        return self._file.fileno()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _reason(error: BaseException) -> str:
    """The first line of what went wrong, without the wrapper of torch.distributed.checkpoint."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error).strip() or repr(error)).split("\n")[0]
