"""One pass after another over prepared samples, without gradients: what scoring and evaluation share.

Passes depend on the samples, their order and the token budget only. Where a pass does not fit into the device's memory, its samples are
packed anew with half the budget, down to single edits; an edit that does not fit alone is returned as an error. The least number of tokens
that did not fit is remembered, so that later passes of that size are halved without being tried. While the memory stays the same this
changes no pass: a pass is halved without a try only if one as small has failed before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import torch

from reward.config import TOKEN_BUDGET
from reward.inference.compute import PassCost
from reward.inputs.batch import KeysValues, PreparedSample, packed
from reward.inputs.sample import SampleError
from reward.model.model import RewardModel, RewardOutput


class MemoryNeedError(SampleError):
    """An edit that needs more memory than the device has."""


@dataclass
class PassStats:
    """What passes used: edits, tokens of their rows, operations, seconds at the model, and passes that did not fit into memory."""

    edits: int = 0
    tokens: int = 0
    flop: float = 0.0
    seconds: float = 0.0
    out_of_memory: int = 0


class Inference:
    """A model that scores, with what it has learnt about its device. Threads may share one: their passes take turns."""

    def __init__(self, model: RewardModel, token_budget: int = TOKEN_BUDGET) -> None:
        self.model = model
        self.token_budget = token_budget
        self.too_many: int | None = None
        """The least number of tokens that did not fit into memory."""
        self._cost = PassCost(model.backbone)
        self._root: tuple[KeysValues, ...] | None = None
        self._turn = threading.Lock()

    def passes(
        self, prepared: Iterable[PreparedSample], on_pass: Callable[[PassStats], None] = lambda _: None
    ) -> Iterator[tuple[list[PreparedSample], RewardOutput | MemoryNeedError]]:
        """Yield, pass by pass, samples and their scores on the CPU. An edit that does not fit alone is yielded with an error.

        A sample that does not fit comes back as samples of its single edits. on_pass gets the statistics of each pass. The model's training
        mode is kept.
        """
        parts = packed(prepared, self.token_budget)
        first = list(islice(parts, 1))  # its samples are prepared while another thread has the model
        was_training = self.model.training
        try:
            with self._turn:
                self.model.eval()
                self._root = self.model.cached_root()
            for part in chain(first, parts):
                yield from self._fitting(part, self.token_budget, on_pass)
        finally:
            self.model.train(was_training)

    def _fitting(
        self, part: list[PreparedSample], budget: int, on_pass: Callable[[PassStats], None]
    ) -> Iterator[tuple[list[PreparedSample], RewardOutput | MemoryNeedError]]:
        tokens = sum(len(item.tree) for item in part)
        single = sum(len(item.tree.reads) for item in part) == 1
        output = None
        if single or self.too_many is None or tokens < self.too_many:
            with self._turn:
                output = self._timed(part, on_pass)
        if output is not None:
            yield part, output
            return
        if single:
            message = f"the {tokens} tokens of this one edit do not fit into the memory of {self.model.device}"
            yield part, MemoryNeedError(f"{message}; score it on a larger device, or with a model that looks at smaller images")
            return
        self.too_many = min(tokens, self.too_many or tokens)
        if len(part) == 1:
            part = self.model.processor.separated(part[0])
        half = max(1, min(budget, tokens) // 2)
        for smaller in packed(part, half):
            yield from self._fitting(smaller, half, on_pass)

    def _timed(self, part: Sequence[PreparedSample], on_pass: Callable[[PassStats], None]) -> RewardOutput | None:
        """The scores of one pass; None when it did not fit into memory."""
        started = time.monotonic()
        try:
            output, stats = self._forward(part)
        except torch.OutOfMemoryError:
            output, stats = None, PassStats(out_of_memory=1)
        if output is None and self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        stats.seconds = time.monotonic() - started
        on_pass(stats)
        return output

    @torch.no_grad()
    def _forward(self, part: Sequence[PreparedSample]) -> tuple[RewardOutput, PassStats]:
        batch = self.model.collate(part, root_cached=self._root is not None)
        output = self.model(batch, self._root)
        output = RewardOutput(*(value.cpu() for value in vars(output).values()))
        return output, PassStats(edits=len(batch.reads), tokens=len(batch.input_ids), flop=self._cost.flop(batch))
