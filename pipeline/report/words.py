"""Numbers as a reader wants them."""

from __future__ import annotations


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def share(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f} %"


def score(value: float) -> str:
    """A score with two decimals and a real minus sign."""
    return f"{value:.2f}".replace("-", "−")


def difference(value: float) -> str:
    """A difference, always with its sign."""
    return f"{value:+.2f}".replace("-", "−")


def duration(seconds: float) -> str:
    """``4.2 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def name(key: str) -> str:
    """A key such as ``visual_quality`` in words."""
    return key.replace("_", " ").replace("-", " ")


def listing(parts: list[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
