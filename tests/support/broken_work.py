"""Work for Ray's processes that ends them, waits for others or fails, in a module that loads nothing heavy."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from stages.datasets import readers as edits
from stages.datasets.readers import Slice
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.units import UnitOutput, Work
from stages.scoring.preparation import Prepared


def deadly(traces: Path, culprit: int) -> Work:
    """Every unit leaves a trace of each time it is begun; one ends the process, always."""

    def work(number: int) -> UnitOutput:
        (traces / f"{number}-{len(list(traces.glob(f'{number}-*')))}").touch()
        time.sleep(0.1)
        if number == culprit:
            os._exit(9)
        return UnitOutput({"scores": contracts.table("scores", [])}, rows_in=0, rows_out=0)

    return work


def fatal_row(fatal: int, piece: Slice) -> Prepared:
    """Every row is seen, but for one that ends the process."""
    numbers = [number for number, _ in piece.rows]
    if fatal in numbers:
        os._exit(11)
    return Prepared([Quarantined(str(number), edits.position("x", number), "seen", "") for number in numbers], [], [])


def marking(traces: Path, piece: Slice) -> Prepared:
    """A piece leaves a trace of being prepared."""
    (traces / str(piece.rows[0][0])).touch()
    return Prepared([], [], [])


def inspecting(fatal: int) -> Work:
    """The rows that reach the work, in a table; one of them ends the process, always."""

    def work(piece: Slice) -> UnitOutput:
        entries = [edits.fatal("x", number) if number in piece.fatal else number for number, _ in piece.rows]
        if fatal in entries:
            os._exit(11)
        rows = [
            {"sample_id": str(entry), "rank": 0, "stratum": "", "score": 0.0, "rule": ""} for entry in entries if isinstance(entry, int)
        ]
        lost = [entry for entry in entries if isinstance(entry, Quarantined)]
        return UnitOutput({"selection": contracts.table("selection", rows)}, len(entries), len(rows), lost)

    return work


def not_loadable() -> Work:
    """What it takes to begin, such as a model, does not fit: the process ends before it sees a row."""
    os._exit(9)


def together(folder: Path, number: int) -> UnitOutput:
    """Work that ends when four processes are at it."""
    (folder / str(os.getpid())).touch()
    give_up = time.monotonic() + 300
    while len(list(folder.iterdir())) < 4:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return UnitOutput({"scores": contracts.table("scores", [])}, rows_in=0, rows_out=0)


def mistaken(payload: dict[str, Any]) -> None:
    """A training loop that notes each of its attempts, and cannot begin."""
    Path(payload["folder"]).mkdir(exist_ok=True)
    with (Path(payload["folder"]) / "attempts").open("a") as file:
        file.write("one\n")
    raise ValueError("a batch of 1 cannot be shared by 2 workers; use a larger batch or fewer workers")
