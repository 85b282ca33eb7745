"""Training checkpoints that a killed run can be resumed from, exactly.

A file is written beside its final name, synced and renamed; its name carries the step and the hash of its content, so a damaged
file is recognised. The newest two are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)

KEPT = 2
_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.pt")


def save_checkpoint(directory: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step` steps, then remove all but the newest two."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f"step-{step:08d}.unfinished"
    with open(unfinished, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(directory / f"step-{step:08d}-{_digest(unfinished)}.pt")
    newest = _found(directory)[:KEPT]
    for path in directory.iterdir():
        if path not in newest and (_NAME.fullmatch(path.name) or path.suffix == ".unfinished"):
            path.unlink()


def newest_sound_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint whose content is what was written; damaged ones are passed over with a warning."""
    for path in _found(directory):
        match = _NAME.fullmatch(path.name)
        assert match is not None
        if _digest(path) == match[2]:
            return path
        log.warning("checkpoint %s is damaged: falling back to the one before it", path)
    return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The state, on the CPU."""
    return torch.load(path, map_location="cpu", weights_only=True)


def _found(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
