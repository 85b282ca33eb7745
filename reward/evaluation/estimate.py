"""A measured value with its 95 % interval: the one type for it in the product, from a statistic to the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

DECIMALS = 6
"""Published figures are rounded, so that the summation order of a linear algebra library does not show in their bytes."""


@dataclass(frozen=True)
class Estimate:
    """``value`` is NaN where it is not defined, and ``note`` may say why. ``low`` and ``high`` bound the 95 % interval; None where there
    is none. ``n``: how many items it rests on, where that is known.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""

    @classmethod
    def read(cls, published: Any) -> Self | None:
        """From what a step published (`to_json`, or a bare number); None where there is no number."""
        given = published if isinstance(published, dict) else {"value": published}
        value = given.get("value")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            return None
        return cls(float(value), given.get("low"), given.get("high"), given.get("n"))

    def to_json(self, decimals: int | None = DECIMALS) -> dict[str, Any]:
        """``{"value", "low", "high"}``, and n and note where they are known. Rounded unless ``decimals`` is None; None for a NaN."""
        bounds = {"value": self.value, "low": self.low, "high": self.high}
        return (
            {name: number(bound, decimals) for name, bound in bounds.items()}
            | ({} if self.n is None else {"n": self.n})
            | ({"note": self.note} if self.note else {})
        )

    def rounded(self, decimals: int = DECIMALS) -> Self:
        """The same with fewer digits."""
        value, low, high = (bound if bound is None else round(bound, decimals) for bound in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    @property
    def defined(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    @property
    def clear(self) -> bool:
        """Whether there is an interval and it does not contain zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def words(self, form: Callable[[float], str]) -> str:
        """``0.87 [0.85, 0.89]``; the bare value without an interval; the note where the value is not defined."""
        if self.note and not self.defined:
            return self.note
        return form(self.value) if self.low is None or self.high is None else f"{form(self.value)} [{form(self.low)}, {form(self.high)}]"

    def __str__(self) -> str:
        return self.words("{:.3f}".format)


def number(value: float | None, decimals: int | None = DECIMALS) -> float | None:
    """A number for JSON, which has no NaN: None where it is not defined."""
    if value is None or math.isnan(value):
        return None
    return value if decimals is None else round(value, decimals)
