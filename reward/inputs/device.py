"""Moving what holds tensors to a device."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


def on_device(value: T, device: torch.device) -> T:
    """Tensors, tuples of tensors and dataclasses of both, with all tensors on a device; anything else as it is."""
    return cast(T, _moved(value, device))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple):
        return tuple(_moved(item, device) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _moved(getattr(value, field.name), device) for field in fields(value)})
    return value
