"""What the steps of a run published. A step that is not done, or a value that it does not have, reads as None."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
import yaml

from pipeline.flow import STEPS_BY_NAME
from pipeline.report.blocks import Block, Missing
from pipeline.report.pictures import Originals
from stages.annotate.ratings.revisions import counting
from stages.engine import contracts, storage
from stages.engine.rundir import Index, RunDir

NOT_DONE = ""
"""Key of the index that stands in for a step that is not done."""


class Published:
    """Read-only view of a run directory."""

    def __init__(self, run: RunDir) -> None:
        self.path = run.path
        self.page = run.path / "report.html"
        self.originals = Originals(self.page)
        """Takes in the images that the page links to."""
        self.index = cache(lambda step: run.step(step).index() or Index(step, NOT_DONE, {}, {}))
        """The published index of a step; one without content before it is done."""
        self.manifest: dict[str, Any] = run.manifest()
        frozen = self.path / "config.yaml"
        self.configuration = frozen.read_text(encoding="utf-8") if frozen.exists() else ""
        self._sections: dict[str, Any] = yaml.safe_load(self.configuration) or {}

    def done(self, step: str) -> bool:
        """Whether the step has published its index."""
        return self.index(step).key != NOT_DONE

    def planned(self, step: str) -> bool:
        """Whether the run's configuration has the step's section; True where the run has no configuration."""
        return not self._sections or self._sections.get(STEPS_BY_NAME[step].section) is not None

    def results(self, step: str) -> dict[str, Any]:
        """The numbers that a step put into its index."""
        return self.index(step).results

    def settings(self, step: str) -> dict[str, Any]:
        """The settings that a step was made with."""
        return self.index(step).settings

    def rows(self, step: str, artifact: str) -> int | None:
        """Rows of an artifact, or None when it does not exist."""
        parts = self.index(step).artifacts.get(artifact)
        return sum(part.rows for part in parts) if parts is not None else None

    def table(self, step: str, artifact: str, columns: list[str], where: tuple[str, Iterable[Any]] | None = None) -> pa.Table | None:
        """Columns of an artifact; ``where`` = (column, values) keeps matching rows only, so that images are read for few rows."""
        parts = self.index(step).artifacts.get(artifact)
        if not parts:
            return None
        filters = [(where[0], "in", list(where[1]))] if where else None
        folder = self.path / step
        tables = [storage.read_table(folder / part.path, columns, filters) for part in parts]
        return pa.concat_tables(tables)

    def ratings(self, where: tuple[str, Iterable[Any]] | None = None) -> pa.Table | None:
        """The ratings of the ledger that count: those that a later revision has replaced are left out."""
        ratings = self.table("annotate", "ratings", contracts.RATINGS.names, where)
        replaced = self.table("annotate", "revisions", contracts.REVISIONS.names)
        return ratings if ratings is None or replaced is None else counting(ratings, replaced)

    def json(self, step: str, name: str) -> dict[str, Any]:
        """A JSON file of a done step; empty when there is none."""
        path = self.path / step / name
        return storage.read_json(path) if self.done(step) and path.exists() else {}

    def lines(self, step: str, name: str) -> list[dict[str, Any]]:
        """Objects of a log in JSON Lines, also while the step is running. Invalid lines, as a kill leaves them, are skipped."""
        path = self.path / step / name
        if not path.exists():
            return []
        found = []
        for line in path.read_text().splitlines(keepends=True):
            with suppress(ValueError):
                found += [json.loads(line)] if line.endswith("\n") else []
        return found

    def label(self, selection: str) -> str:
        """A selection's name for readers; a baseline's name says which baseline it is."""
        rules = {entry["name"]: entry.get("rule") for entry in self.settings("filter").get("filter", {}).get("selections", [])}
        meaning = {"all": "unfiltered", "closest-to-source": "similarity baseline"}.get(rules.get(selection))
        return f"{selection} ({meaning})" if meaning else selection

    def missing(self, step: str) -> list[Block]:
        """A block that names the command of a step of the run's configuration that is not done; nothing when it is done."""
        if self.done(step) or not self.planned(step):
            return []
        where = f"{self.path.parent.name}/{self.path.name}"
        config = f" --config {where}/config.yaml" if self.configuration else ""
        return [Missing(step, f"{STEPS_BY_NAME[step].command}{config} --run {where}")]
