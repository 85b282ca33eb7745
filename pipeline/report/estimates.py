"""A measured number with its interval, as the steps publish it: ``{"value", "low", "high", "n"}``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Estimate:
    """``low`` and ``high`` bound the 95 % interval where the step gave one; ``n`` is how many items it rests on."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @classmethod
    def read(cls, published: Any) -> Self | None:
        """From what a step wrote; None where there is no number (a step writes a remark instead when nothing varied)."""
        if isinstance(published, bool):
            return None
        if isinstance(published, (int, float)):
            return cls(float(published)) if published == published else None
        if not isinstance(published, dict) or not isinstance(published.get("value"), (int, float)):
            return None
        return cls(*(published.get(name) for name in ("value", "low", "high", "n")))

    @property
    def clear(self) -> bool:
        """Whether there is an interval and it does not contain zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def words(self, form: Callable[[float], str]) -> str:
        """``0.87 [0.85, 0.89]``, or the bare number without an interval."""
        if self.low is None or self.high is None:
            return form(self.value)
        return f"{form(self.value)} [{form(self.low)}, {form(self.high)}]"
