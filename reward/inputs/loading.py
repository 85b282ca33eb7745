"""Groups read, decoded and resized ahead of the model, by the worker processes of torch's DataLoader.

In: rated groups whose images are bytes or references, and the batches that are wanted, as positions. Out: the prepared groups, batch by
batch in that order. Neither the order nor a pixel depends on the number of workers. Memory has the batches under way, two per worker, and
what the cache may keep; it does not grow with the number of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset

from reward.inputs.batch import PreparedSample
from reward.inputs.groups import RatedGroup
from reward.inputs.processor import Processor
from reward.inputs.sample import SampleError


class GroupLoader:
    """Prepares groups with a number of worker processes; with 0 the process itself does, when a batch is asked for.

    cache_bytes: of decoded images that the process keeps when it prepares them itself; the rest is decoded at each use. Worker processes
    keep nothing.
    """

    def __init__(self, processor: Processor, groups: Sequence[RatedGroup], *, workers: int = 0, cache_bytes: int = 0) -> None:
        self._workers = workers
        self._dataset = _PreparedGroups(processor, groups, 0 if workers else cache_bytes)

    def batches(self, wanted: Iterable[Sequence[int]]) -> Iterator[list[PreparedSample]]:
        """The groups at these positions, batch by batch. ``wanted`` is read ahead of what is yielded.

        Raises SampleError for a damaged image and ValueError for one that cannot be read, both naming the group, in the batch's turn.
        """
        loader: DataLoader[PreparedSample | ValueError] = DataLoader(
            self._dataset,
            batch_sampler=wanted,  # ty: ignore[invalid-argument-type]  # any iterable will do
            num_workers=self._workers,
            collate_fn=list,
            generator=torch.Generator(),  # the default would draw from the randomness of the training
            multiprocessing_context="fork" if self._workers else None,  # groups are shared, not copied; workers use the CPU only
        )
        for batch in loader:
            for item in batch:
                if isinstance(item, ValueError):
                    raise item
            yield batch

    def in_order(self) -> Iterator[PreparedSample]:
        """All groups one by one."""
        for batch in self.batches([index] for index in range(len(self._dataset))):
            yield from batch


class _PreparedGroups(Dataset[PreparedSample | ValueError]):
    """Groups by position. An error is returned, since the DataLoader would wrap it into a traceback of its worker."""

    def __init__(self, processor: Processor, groups: Sequence[RatedGroup], capacity: int) -> None:
        self._processor, self._groups, self._free = processor, groups, capacity
        self._kept: dict[int, PreparedSample] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, index: int) -> PreparedSample | ValueError:
        if index in self._kept:
            return self._kept[index]
        group = self._groups[index]
        try:
            prepared = self._processor.prepare(source=group.source, candidates=group.candidates, instruction=group.instruction)
        except ValueError as error:
            kind = SampleError if isinstance(error, SampleError) else ValueError
            return kind(f"group {group.source_id}: {error}")
        if prepared.bytes <= self._free:
            self._free -= prepared.bytes
            self._kept[index] = prepared
        return prepared
