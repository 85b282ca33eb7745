"""What a unit of edits has made so far, so that a process that dies costs no more than the batch that was in work.

A folder per unit: a file per finished batch, named by the places of its candidates in the unit and the hash of its content; and a note on
the batch in work, by which the driver knows what a process was at when it died. The folder goes once the unit is published.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.engine import contracts, storage

_BEGUN = "begun.json"


class Journal:
    """The folder of one unit."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def finished(self) -> dict[int, Path]:
        """The file of every finished candidate by its place. Files that are torn or damaged are removed."""
        found: dict[int, Path] = {}
        for path in sorted(self.folder.glob("*.parquet")):
            first, count, sha256 = path.stem.split("-")
            if hashlib.sha256(path.read_bytes()).hexdigest()[:16] != sha256:
                path.unlink()
                continue
            found |= dict.fromkeys(range(int(first), int(first) + int(count)), path)
        return found

    def write(self, first: int, rows: Sequence[dict[str, Any]]) -> None:
        """Keep the candidates of a finished batch; ``first``: place of the first of them."""
        data = storage.table_bytes(contracts.table("candidates", list(rows)))
        name = f"{first:06d}-{len(rows)}-{hashlib.sha256(data).hexdigest()[:16]}.parquet"
        storage.publish_bytes(self.folder / name, data)

    def rows(self) -> Iterator[dict[str, Any]]:
        """All candidates in their order, each once: a process that outlived its driver may have made some of them, too."""
        following = 0
        for path in sorted(self.folder.glob("*.parquet")):
            first, count, _ = path.stem.split("-")
            if int(first) >= following:
                following = int(first) + int(count)
                yield from storage.read_table(path).cast(contracts.CANDIDATES).to_pylist()

    def tables(self, names: Sequence[str], name_of: Callable[[dict[str, Any]], str]) -> dict[str, pa.Table]:
        """All candidates by the table that each belongs to, in their order: ``names`` and what else there is. The bytes of the tables do
        not depend on the batches."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for row in self.rows():
            found.setdefault(name_of(row), []).append(row)
        return {name: contracts.table("candidates", found[name]) for name in sorted(found)}

    def forget(self, fails: Callable[[dict[str, Any]], bool]) -> None:
        """Remove the batches with such a row, so that they are made again."""
        for path in self.folder.glob("*.parquet"):
            if any(map(fails, storage.read_table(path, ["status", "flags"]).to_pylist())):
                path.unlink()

    def begin(self, places: Sequence[int]) -> None:
        """Note that these candidates are in work; nothing is, with none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{storage.TEMPORARY}{os.getpid()}"
        partial.write_text(json.dumps({"places": list(places), "since": time.time()}))
        partial.replace(self.folder / _BEGUN)

    def begun(self) -> tuple[tuple[int, ...], float]:
        """Places of the candidates that are, or were, in work, and for how many seconds until now."""
        try:
            found = json.loads((self.folder / _BEGUN).read_text())
        except (OSError, ValueError):
            return (), 0.0
        return tuple(found["places"]), time.time() - found["since"]
