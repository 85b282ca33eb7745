"""Training checkpoints that survive a kill at any moment: written aside, renamed, checked by digest, the newest two kept.

A checkpoint is one file: 32 bytes of BLAKE2b digest, then what torch.save wrote.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

import torch

_DIGEST = 32
_KEPT = 2


def save_checkpoint(directory: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step` steps under its final name in one move, then remove all but the newest two."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / "checkpoint.unfinished"
    with unfinished.open("wb") as file:
        file.write(hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(directory / f"checkpoint-{step:08d}.pt")
    for path in _newest_first(directory)[_KEPT:]:
        path.unlink()


def load_checkpoint(directory: Path) -> dict[str, Any] | None:
    """The newest sound state, None if there is none; a damaged file is named in a warning and passed over."""
    for path in _newest_first(directory):
        content = path.read_bytes()
        payload = content[_DIGEST:]
        if hashlib.blake2b(payload, digest_size=_DIGEST).digest() == content[:_DIGEST]:
            return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
        warnings.warn(f"checkpoint {path} is damaged; training resumes from an older one", stacklevel=2)
    return None


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob("checkpoint-*.pt"), reverse=True)
