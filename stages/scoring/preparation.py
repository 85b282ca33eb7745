"""Edits prepared for scoring: read, decoded once, resized to uint8, with the tree of their prompts; nothing here needs the model's weights.

In: a slice of edits. Out, piece by piece: the model's inputs, and the other columns of a row of scores. The work is done in this process,
or on Ray tasks while the model computes; the pieces are the same. A task that dies is tried again by Ray; when it keeps dying its rows are
prepared one by one, and a row that still kills its process is set aside.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import NodeDiedError, WorkerCrashedError

from reward.evaluation.baselines import change_from_source
from stages.datasets import readers as edits
from stages.engine.contracts import Quarantined

if TYPE_CHECKING:
    from reward import SampleError
    from reward.inputs.batch import PreparedSample
    from reward.inputs.processor import Processor

PIECE_BYTES = 32 << 20
"""Decoded images of one piece, as far as it has more than one edit."""
PIECE_ROWS = 128
TRIES = 3
"""Times that Ray repeats a task whose process died."""


@dataclass(frozen=True)
class Ready:
    """An edit whose images decoded: all columns of its row of ``scores`` but the score. reference: row of the ``edits`` contract."""

    row_id: str
    position: str
    reference: dict[str, Any]
    change: float


@dataclass(frozen=True)
class Prepared:
    """A piece. entries: its rows in their order; shown: what the model sees, of all ``Ready`` entries in the order of ``order``."""

    entries: list[Ready | Quarantined]
    shown: list[PreparedSample | SampleError]
    order: list[int]


Prepare = Callable[[edits.Slice], Prepared]


def pieces_of(piece: edits.Slice, image_area: int) -> list[edits.Slice]:
    """A slice in pieces of bounded memory."""
    rows = max(1, min(PIECE_ROWS, PIECE_BYTES // (2 * 3 * image_area)))
    return [replace(piece, rows=piece.rows[first : first + rows]) for first in range(0, len(piece.rows), rows)]


def prepare(model: Path, piece: edits.Slice) -> Prepared:
    """Prepare a piece for a saved model. Edits of one source are shown next to each other, so that the source is encoded once."""
    from reward import EditSample

    fetched = list(edits.fetch(piece))
    entries: list[Ready | Quarantined | None] = [entry if isinstance(entry, Quarantined) else None for entry in fetched]
    alike: dict[str, dict[str, list[int]]] = {}  # source -> instruction -> rows
    for number, edit in enumerate(fetched):
        if isinstance(edit, edits.Edit):
            alike.setdefault(edit.source_sha256, {}).setdefault(edit.instruction, []).append(number)
    shown: list[PreparedSample | SampleError] = []
    order: list[int] = []
    for same in [rows for by_instruction in alike.values() for rows in by_instruction.values()]:
        samples, source = [], None
        for number in same:
            edit = fetched[number]
            assert isinstance(edit, edits.Edit)
            images = edits.opened(edit, whole=False)
            if isinstance(images, Quarantined):
                entries[number] = images
                continue
            source = source or images[0]
            samples.append(EditSample(source, edit.instruction, images[1]))
            entries[number] = Ready(edit.row_id, edit.position, edit.row(with_images=False), change_from_source(source, images[1]))
            order.append(number)
        shown.extend(_processor(model).prepare_each(samples))
    assert None not in entries
    return Prepared([entry for entry in entries if entry is not None], shown, order)


@functools.lru_cache(maxsize=1)
def _processor(model: Path) -> Processor:
    import torch

    from reward.inputs.processor import Processor

    torch.set_num_threads(1)
    return Processor.load(model)


def prepared(pieces: Sequence[edits.Slice], prepare: Prepare, *, workers: int) -> Iterator[Prepared]:
    """Yield the prepared pieces in their order. While one is used, ``workers`` others are prepared; with 0 this process prepares each on
    demand.

    An exception of ``prepare`` is raised unchanged.
    """
    if workers == 0:
        yield from map(prepare, pieces)
        return
    task: Any = ray.remote(num_cpus=1, max_retries=TRIES)(_task)
    todo = deque(pieces)
    waiting: deque[tuple[edits.Slice, Any]] = deque()

    def begin() -> None:
        while todo and len(waiting) < workers:
            waiting.append((todo[0], task.remote(prepare, todo.popleft())))

    begin()
    while waiting:
        piece, reference = waiting.popleft()
        made: Iterable[Prepared]
        try:
            made = [ray.get(reference)]
        except (WorkerCrashedError, NodeDiedError):
            if len(piece.rows) == 1:
                made = [Prepared([edits.fatal(piece.dataset, piece.rows[0][0])], [], [])]
            else:
                made = prepared([replace(piece, rows=[row]) for row in piece.rows], prepare, workers=1)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        begin()
        yield from made


def _task(prepare: Prepare, piece: edits.Slice) -> Prepared:
    """A function of its own, because Ray names the process after it."""
    return prepare(piece)
