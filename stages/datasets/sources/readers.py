"""Sources: images with an instruction to carry out, one file per kind of data set.

Each module has ``plan`` (runs on the driver: cheap slices that carry no images) and ``load`` (runs in a worker: rows of the
``sources`` contract, or quarantined rows with a reason).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.config import TableSources, WorldConfig, WorldSources
from stages.datasets.sources import table, world
from stages.engine.contracts import Quarantined


def plan(config: WorldSources | TableSources, *, seed: int, drawing: WorldConfig | None, rows: int) -> list[dict[str, Any]]:
    """Slices of at most ``rows`` sources; plain values that name their content, so that their hash can name a unit."""
    if isinstance(config, WorldSources):
        if drawing is None:
            raise ValueError("generate.sources: dataset world needs the section world in the configuration")
        return world.plan(config, seed=seed, drawing=drawing, rows=rows)
    return table.plan(config, rows=rows)


def placed(piece: dict[str, Any]) -> dict[str, Any]:
    """The slice as a worker needs it: with the place of its files, which does not name the work."""
    return table.placed(piece) if piece["dataset"] == "table" else piece


def load(piece: dict[str, Any]) -> Iterator[dict[str, Any] | Quarantined]:
    """Rows of a slice in their order."""
    yield from {"world": world.load, "table": table.load}[piece["dataset"]](piece)
