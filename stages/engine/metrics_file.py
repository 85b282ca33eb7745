"""``metrics.jsonl`` of a training, in a module that does not load Ray Train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class MetricsFile:
    """``metrics.jsonl``: one JSON object per report; each attempt starts it anew, and a resumed training repeats finished reports."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self.write = write
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def append(self, report: dict[str, Any]) -> None:
        """Add a report; only rank 0 of a group writes."""
        if self.write:
            with self.path.open("a") as file:
                file.write(json.dumps(report, sort_keys=True) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Reports so far; a line that is still being written is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
