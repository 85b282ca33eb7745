"""The time of a denoiser in float32 up to its sinusoid.

diffusers' transformers cast the time to the dtype of their input before they embed it: in bf16, 0.777 becomes 776 of 1000.
"""

from __future__ import annotations

from torch import Tensor, nn


class ExactTime:
    """Gives an embedding of time the exact value instead of the one that the library passes on.

    embedder: a module whose first argument is the time. scale: what the library multiplies the time with before it calls it.
    """

    def __init__(self, embedder: nn.Module, scale: float = 1000.0) -> None:
        self._scale = scale
        self._time: Tensor | None = None
        embedder.register_forward_pre_hook(self)

    def set(self, time: Tensor) -> None:
        """The time [n] of the pass that follows, float32 in [0, 1]."""
        self._time = time.float()

    def __call__(self, module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The embedder's arguments, the first one replaced."""
        assert self._time is not None
        return (self._time * self._scale, *arguments[1:])
