"""Room on the disk, asked before work that fills it."""

from __future__ import annotations

import shutil
from pathlib import Path


def check_room(folder: Path, needed: int, what: str, remedy: str) -> None:
    """Raise ``ValueError`` where the disk of a folder, which need not be there yet, has less than ``needed`` bytes.

    ``what`` takes them, a plural; ``remedy``: what the user can do.
    """
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ValueError(f"{what} take about {needed / 1e9:,.1f} GB, and the disk of {folder} has {free / 1e9:,.1f} GB free; {remedy}")
