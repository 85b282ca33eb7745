"""Rows that are set aside: what is counted with its reason instead of being skipped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quarantined:
    """A row that could not be processed. ``position`` is where it came from, ``reason`` a short code, ``message`` a sentence."""

    row_id: str
    position: str
    reason: str
    message: str
