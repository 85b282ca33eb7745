"""Pairs of a step, read ahead of the model by the worker processes of torch's DataLoader, with what is random of each.

Times, noise and dropped conditions are functions of (seed, step, number in the batch), whichever worker computes the pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset

from finetune.config import RectifiedFlowConfig
from finetune.editing_model import Condition, Moments
from finetune.rectified_flow import Draws, draw
from finetune.training.pairs import Bucket, StoredPairs
from reward.trainer.order import derived_seed
from reward.trainer.workers import rank_share

Shift = Callable[[int, int], float]
"""Resolution shift of a target latent of so many rows and columns."""
_Place = tuple[int, int, int]
"""Step, number in its batch, number of the pair."""


@dataclass(frozen=True)
class PreparedPair:
    """One pair of a batch, with the condition it is learnt with and its draws, whose tensors have one row."""

    bucket: Bucket
    target: Moments
    reference: Moments
    condition: Condition
    draws: Draws


class PairLoader:
    """This worker's share of every step's pairs, those of one bucket together.

    order: numbers of a step's pairs. workers: processes that read ahead; memory has the steps under way, two per process.
    """

    def __init__(
        self, pairs: StoredPairs, order: Callable[[int], list[int]], flow: RectifiedFlowConfig, shift: Shift, *, seed: int, workers: int
    ) -> None:
        self._prepared = _PreparedPairs(pairs, flow, shift, seed)
        self._order, self._workers, self._pairs = order, workers, pairs
        self._next: tuple[int, Generator[list[PreparedPair]]] | None = None

    def share(self, step: int) -> list[PreparedPair]:
        """The pairs of a step that this worker computes. Raises ValueError for one that cannot be read, in its turn."""
        if self._next is None or self._next[0] != step:
            self._next = step, self._from(step)
        iterator = self._next[1]
        self._next = step + 1, iterator
        return next(iterator)

    def close(self) -> None:
        """End the processes that read ahead. Left to the garbage collector, they would be waited for wherever it happens to run."""
        if self._next is not None:
            self._next[1].close()
            self._next = None

    def _from(self, first: int) -> Generator[list[PreparedPair]]:
        loader: DataLoader[PreparedPair | ValueError] = DataLoader(
            self._prepared,
            batch_sampler=(self._places(step) for step in itertools.count(first)),
            num_workers=self._workers,
            collate_fn=list,
            generator=torch.Generator(),  # the default would draw from the randomness of the training
            multiprocessing_context="fork" if self._workers else None,
        )
        for batch in loader:
            for pair in batch:
                if isinstance(pair, ValueError):
                    raise pair
            yield batch

    def _places(self, step: int) -> list[_Place]:
        batch = self._order(step)
        by_size = sorted(range(len(batch)), key=lambda row: self._pairs.bucket_of[batch[row]])
        return [(step, row, batch[row]) for row in rank_share(by_size)]


class _PreparedPairs(Dataset[PreparedPair | ValueError]):
    """Pairs by place. An error is returned, since the DataLoader would wrap it into a traceback of its worker."""

    def __init__(self, pairs: StoredPairs, flow: RectifiedFlowConfig, shift: Shift, seed: int) -> None:
        self._pairs, self._flow, self._shift, self._seed = pairs, flow, shift, seed

    def __getitem__(self, index: _Place) -> PreparedPair | ValueError:
        step, row, number = index
        bucket = self._pairs.buckets[self._pairs.bucket_of[number]]
        try:
            pair = self._pairs.read(number)
            generator = torch.Generator().manual_seed(derived_seed(self._seed, "flow", step, row))
            shift = self._shift(bucket.target_rows, bucket.target_columns)
            draws = draw(self._flow, generator, 1, pair.target.mean.shape, pair.reference.mean.shape, shift)
            condition = self._pairs.read_null(number) if bool(draws.dropped) else pair.condition
        except ValueError as error:
            return error
        return PreparedPair(bucket, pair.target, pair.reference, condition, draws)
