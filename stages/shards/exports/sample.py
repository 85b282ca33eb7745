"""What a format needs to know of an extracted sample."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Extracted:
    """A sample whose images are files; ``source`` and ``edited`` are their paths below the export's folder."""

    sample_id: str
    instruction: str
    source: str
    edited: str
    licence: str
    rank: int
