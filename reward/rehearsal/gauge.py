"""Counting what a pass does on the meta device, and finding what it may not do there.

Operations are counted as they are dispatched: floating-point operations by torch's flop counter, kernel launches as operations that are no
views (an operation may launch several kernels), bytes of the tensors that are alive. A value that is read back, a tensor of the CPU beside
those of the device, or shapes that do not fit end the pass with its place in the source.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import varlen  # noqa: F401  registers its operations
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from reward.inputs.batch import Batch

_ALLOCATING = {torch.ops.aten.empty, torch.ops.aten.empty_strided, torch.ops.aten.empty_like, torch.ops.aten.new_empty}
_LOWERED = ((F, "linear"), (F, "conv3d"), (F, "scaled_dot_product_attention"), (torch, "matmul"), (torch, "bmm"))
_READS = ("meta tensor", "Meta tensor", "_nonzero_")
"""In torch's messages for what needs a value on the meta device, or a size that depends on values."""
_SOURCES = Path(__file__).parents[2]


class RehearsalError(ValueError):
    """A pass that would not run, or would wait for its device: the place in the source and what happened there."""


class Gauge(TorchDispatchMode):
    """Counts while it is active: flop, kernels, and peak, the most bytes that were alive at a time of those made meanwhile.

    pairs: of attention over segments, whose lengths the device holds: number of (query, key) pairs by `segments_key` of the query bounds.
    """

    def __init__(self, pairs: Mapping[int, int]) -> None:
        super().__init__()
        self.flop, self.kernels, self.peak = 0.0, 0, 0
        self._pairs = pairs
        self._alive = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in (*given, *made):
            if tensor.device.type != "meta" and tensor.dim() > 0:
                raise RehearsalError(f"{func.overloadpacket} has a tensor of the {tensor.device.type.upper()} in the pass of a device")
        if not func.is_view and func.overloadpacket not in _ALLOCATING:
            self.kernels += 1
        self.flop += self._flop(func.overloadpacket, args, kwargs, result)
        for tensor in given:  # what was there before, such as weights
            self._known.setdefault(tensor.untyped_storage(), 0)
        for tensor in made:
            self._note(tensor.untyped_storage())
        return result

    def _flop(self, operation: Any, args: Any, kwargs: Any, result: Any) -> float:
        if operation is torch.ops.torch_attn._varlen_attn:
            query, bounds = args[0], args[3]
            return 4.0 * self._pairs[segments_key(bounds)] * query.shape[1] * query.shape[2]  # two products
        if operation is torch.ops.torch_attn._varlen_attn_backward:
            query, bounds = args[1], args[6]
            return 10.0 * self._pairs[segments_key(bounds)] * query.shape[1] * query.shape[2]  # five
        count = flop_registry.get(operation)
        return 0.0 if count is None else float(count(*args, **kwargs, out_val=result))

    def _note(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known[storage] = size = storage.nbytes()
        self._alive += size
        self.peak = max(self.peak, self._alive)
        weakref.finalize(storage, self._drop, size)

    def _drop(self, size: int) -> None:
        self._alive -= size


@contextmanager
def half_precision(excepted: nn.Module) -> Generator[None]:
    """What `torch.autocast` in bfloat16 does to products of matrices; autocast itself does not know the meta device.

    torch's functions are replaced meanwhile: a function mode would not reach what the backward pass computes again. excepted: a module that
    turns autocast off.
    """
    paused = False

    def pause(pausing: bool) -> None:
        nonlocal paused
        paused = pausing

    def lowered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            if paused:
                return function(*args, **kwargs)
            return function(*(_lowered(value) for value in args), **{name: _lowered(value) for name, value in kwargs.items()})

        return call

    kept = [(home, name, getattr(home, name)) for home, name in _LOWERED]
    hooks = [excepted.register_forward_pre_hook(lambda *_: pause(True)), excepted.register_forward_hook(lambda *_: pause(False))]
    try:
        for home, name, function in kept:
            setattr(home, name, lowered(function))
        yield
    finally:
        for home, name, function in kept:
            setattr(home, name, function)
        for hook in hooks:
            hook.remove()


def segments_key(bounds: Tensor) -> int:
    """Names the bounds of segments, whatever view of them is passed on."""
    return bounds.untyped_storage()._cdata


def pairs_of(batch: Batch) -> dict[int, int]:
    """(query, key) pairs of each kind of attention of a batch, for `Gauge`."""
    tree = batch.attention
    pairs = {segments_key(tree.query_bounds): sum(nodes * length * path for nodes, length, path in tree.shapes)}
    if batch.vision is not None:
        for segments in (batch.vision.images, batch.vision.windows):
            if segments is not None:
                pairs[segments_key(segments.bounds)] = sum(count * length**2 for count, length in segments.runs)
    return pairs


@contextmanager
def faults(part: str) -> Generator[None]:
    """Inside, an error becomes a RehearsalError that names the place. part: what is rehearsed, in words."""
    try:
        yield
    except (RuntimeError, NotImplementedError, IndexError, RehearsalError) as error:
        text = str(error).splitlines()[0]
        if any(mark in text for mark in _READS) and not isinstance(error, RehearsalError):
            text = f"a value is read back from the device ({text})"
        raise RehearsalError(f"{part} fails at {_place(error)}: {text}") from error


def _place(error: BaseException) -> str:
    """File, line and function of the innermost frame that is neither torch's nor of this file."""
    packages = Path(torch.__file__).parents[1]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((str(packages / "torch") + "/", "<")) and frame.filename != __file__
    ]
    frame = frames[-1]
    file = Path(frame.filename)
    for base in (packages, _SOURCES):
        if file.is_relative_to(base):
            file = file.relative_to(base)
            break
    return f"{file}:{frame.lineno} ({frame.name})"


def _lowered(value: Any) -> Any:
    return value.to(torch.bfloat16) if isinstance(value, Tensor) and value.dtype == torch.float32 else value
