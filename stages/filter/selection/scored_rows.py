"""The scored edits of a run as rows of a database, which are never all in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from stages.contamination.compare import NAME
from stages.engine import contracts
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import Tables, text
from stages.filter.schemas import SCORED


@dataclass(frozen=True)
class ScoredRows:
    """``count`` scored edits: rows of the schema ``SCORED`` in ``files``, in the order of the data set, and as the view ``scored`` of
    ``tables``, which has the views ``gated`` and ``contamination`` beside it. ``flags``: those that edits can have."""

    tables: Tables
    files: Sequence[Path]
    count: int
    flags: frozenset[str]

    @classmethod
    def of(cls, database: Tables, step: StepFolder, artifacts: Mapping[str, Sequence[Part]], flags: Iterable[str] = ()) -> Self:
        """Those that the parts of a filter step list. Raises ``ValueError`` when a version with fewer gates made them."""
        files = {name: [step.path / part.path for part in artifacts.get(name, ())] for name in ("scores", "gated", NAME)}
        written = pq.read_schema(files["scores"][0]).names if files["scores"] else SCORED.names
        missing = [name for name in SCORED.names if name not in written]
        if missing:
            raise ValueError(
                f"the scores in {step.path} have no {missing[0]}, as another version made them; run `pipeline run filter` again"
            )
        database.view("scored", files["scores"], SCORED)
        database.view("gated", files["gated"], contracts.GATED)
        database.view(NAME, files[NAME], contracts.CONTAMINATION)
        return cls(database, files["scores"], sum(part.rows for part in artifacts["scores"]), frozenset(flags))

    def dimensions(self) -> list[str]:
        """Names of the dimensions. Raises ``ValueError`` where not all edits have the same ones in the same order."""
        first = self.tables.table("SELECT [entry.dimension FOR entry IN dimensions] AS names FROM scored LIMIT 1")["names"]
        names = first[0].as_py() if self.count else []
        different = [f"len(dimensions) <> {len(names)}", *(f"dimensions[{n}].dimension <> {text(name)}" for n, name in enumerate(names, 1))]
        if self.tables.number(f"SELECT count(*) FROM scored WHERE {' OR '.join(different)}"):
            raise ValueError("the scores' rows have not all the same dimensions in the same order; score the edits with one reward model")
        return names
