"""Why a row cannot be read."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """Why a row cannot be read: a reason code and a sentence."""

    reason: str
    message: str
