"""What the content filter says of edits that are made: the tables in which it finds some are published again without them.

The filter sees what a unit of edits published, so another filter makes no edit again. A table in which it finds nothing stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from reward.inputs.decoding import decode
from stages.context import Context
from stages.editors.output_checks import content_filter, content_filter_version
from stages.engine import contracts, storage, unit_log
from stages.engine.cluster import cores
from stages.engine.dispatch import CrewFailed
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitOutput, UnitRecord
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import EditTask
from stages.generate.settling import FAILED, table_of

FLAG = "content"
KEY = "generate.outputs.content_filter"


@dataclass(frozen=True)
class FilterTask:
    """Tables of edits by their names, and the task in which they were made."""

    tables: dict[str, str]
    edits: EditTask


def filtered(
    context: Context, folder: StepFolder, config: GenerateConfig, units: Sequence[Unit], logged: Mapping[str, UnitRecord]
) -> dict[str, UnitRecord]:
    """The records of units of edits by key, with the tables that take the place of those in which the filter found something."""
    made = {unit.key: logged[unit.key] for unit in units}
    name = config.outputs.content_filter
    if name is None:
        return made
    looks = [_unit(folder, unit, made[unit.key], [name, content_filter_version(name)]) for unit in units]
    workers = config.workers or (context.cluster.cpus if context.cluster.address else cores())
    run_units(folder, looks, partial(ContentWork, name), cluster=context.cluster, workers=workers, phase="content filter", rows_are="edits")
    records = unit_log.sound(folder)
    return {key: replace(made[key], parts=made[key].parts | records[look.key].parts) for key, look in zip(made, looks, strict=True)}


def _unit(folder: StepFolder, unit: Unit, made: UnitRecord, which: Sequence[str]) -> Unit:
    parts = {name: part for name, part in made.parts.items() if part.rows and name not in (FAILED, "quarantine")}
    tables = {name: str(folder.path / part.path) for name, part in parts.items()}
    rows = sum(part.rows for part in parts.values())
    key = settings_hash(FLAG, which, {name: part.sha256 for name, part in parts.items()}, unit.key)
    return Unit(key, FilterTask(tables, unit.payload), rows, name=f"the content filter on {unit.name}", family=unit.family)


class ContentWork:
    """The work function of the filter of that name."""

    def __init__(self, name: str) -> None:
        self.name, self.finds = name, content_filter(name)

    def __call__(self, task: FilterTask) -> UnitOutput:
        """The tables in which it finds edits, without these, and those that hold these. Raises ``CrewFailed`` where the filter raises."""
        said = {row["source_id"]: row["instruction"] for row in task.edits.sources_with(["source_id", "instruction"])}
        tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
        looked = 0
        for name, path in task.tables.items():
            rows = storage.read_table(Path(path)).cast(contracts.CANDIDATES).to_pylist()
            looked += len(rows)
            found = [self._found(row, said[row["source_id"]]) for row in rows]
            if any(found):
                tables[name] = [row for row, there in zip(rows, found, strict=True) if not there]
                for row in (row for row, there in zip(rows, found, strict=True) if there):
                    flagged = row | {"flags": [*row["flags"], FLAG]}
                    tables[table_of(flagged)].append(flagged)
        return UnitOutput({name: contracts.table("candidates", rows) for name, rows in tables.items()}, looked, looked)

    def _found(self, row: Mapping[str, Any], instruction: str) -> bool:
        try:
            return bool(self.finds(decode(row["image"]["bytes"]), instruction))
        except Exception as error:  # plug-ins and their libraries raise anything
            said = f"{type(error).__name__}: {error}"
            raise CrewFailed(f"{KEY}: {self.name} raised an error at candidate {row['candidate_id']} ({said}); repair it") from error
