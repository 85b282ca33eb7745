"""Quotas: how many samples of each stratum to keep, and which ones when a stratum has too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stages.filter.selection.config import SelectionConfig


@dataclass(frozen=True)
class Stratum:
    """One stratum of a selection: edits scored, those that bound and clusters leave, quota, and samples kept."""

    name: str
    scored: int
    available: int
    asked: int
    kept: int


def shares(count: int, weights: np.ndarray) -> np.ndarray:
    """``count`` divided in proportion to ``weights`` int [k], not all zero: int64 [k] with that sum.

    Largest remainders (Hamilton's method); equal remainders go to the earlier entry.
    """
    total = int(weights.sum())
    exact = [divmod(count * int(weight), total) for weight in weights]  # whole numbers of any size
    parts = np.array([whole for whole, _ in exact], np.int64)
    largest_first = sorted(range(len(exact)), key=lambda place: -exact[place][1])
    parts[largest_first[: count - int(parts.sum())]] += 1
    return parts


def asked_for(config: SelectionConfig, count: int, names: Sequence[str], scored: np.ndarray, other: Mapping[str, int]) -> np.ndarray:
    """The quota of every stratum, int64 [k]. ``scored``: edits per stratum; ``other``: samples per stratum of the selection ``like``.

    Raises ``ValueError`` when the configuration names a stratum that does not occur.
    """
    quotas = config.quotas
    assert quotas is not None
    if quotas.numbers is not None:
        unknown = [name for name in quotas.numbers if name not in names]
        if unknown:
            known = ", ".join(name or "(empty)" for name in names[:12])
            raise ValueError(f"selection {config.name}: no scored edit has {quotas.by} {unknown[0]!r}; quotas.numbers can name {known}")
        return np.array([quotas.numbers.get(name, 0) for name in names], np.int64)
    if quotas.shares == "like":
        return np.array([other.get(name, 0) for name in names], np.int64)
    return shares(count, np.ones(len(names), np.int64) if quotas.shares == "equal" else scored)


def check(config: SelectionConfig, asked: np.ndarray, available: np.ndarray, names: Sequence[str]) -> None:
    """Raise ``ValueError`` when quotas ``asked`` int [k] cannot be filled from the rows that are ``available``, int [k]."""
    quotas = config.quotas
    assert quotas is not None
    missing = np.maximum(asked - available, 0)
    if missing.any() and quotas.short == "refuse":
        places = np.flatnonzero(missing).tolist()
        stated = "; ".join(f"{names[at] or '(empty)'} {asked[at]:,} asked, {available[at]:,} there" for at in places[:6])
        more = f"; and {len(places) - 6} strata more" if len(places) > 6 else ""
        raise ValueError(
            f"selection {config.name}: {missing.sum():,} samples are missing by {quotas.by} ({stated}{more}); "
            "lower the quotas, or set quotas.short to refill"
        )
    if asked.sum() > available.sum():
        raise ValueError(
            f"selection {config.name}: its quotas ask for {asked.sum():,} samples and only {available.sum():,} remain; lower the quotas"
        )
