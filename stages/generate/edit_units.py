"""The units of edits: some edits of one editor, of consecutive sources.

A unit's key names its editor, settings, seeds and what its sources hold, and nothing of other editors, other sources or workers: when an
editor or sources are added, only their units are made. A unit is small, so that in the end no worker is long at work while others have
nothing to do; what a unit costs beside its edits is done while the editor works on the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from stages.context import Context
from stages.engine import unit_log
from stages.engine.ids import settings_hash
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Unit
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import EditTask, Retry

JOURNALS = "unfinished"
"""Folder of what unfinished units have made so far."""
UNIT_EDITS = 16
"""At most in a unit, but at least a batch of the editor, and one source."""


@dataclass(frozen=True)
class ListedSources:
    """The sources of one published table: the id of each, and the hash of all that an editor gets of it."""

    path: str
    ids: tuple[str, ...]
    contents: tuple[str, ...]


def listed(folder: StepFolder, part: Part) -> ListedSources:
    """What keys of units are made of. An id is a hash of image and instruction."""
    table = folder.read_table("sources", [part], ["source_id", "dataset", "metadata"])
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    contents = tuple(settings_hash(*row) for row in rows)
    return ListedSources(str(folder.path / part.path), tuple(table["source_id"].to_pylist()), contents)


def of_plan(
    context: Context, folder: StepFolder, config: GenerateConfig, editor: PlannedEditor, sources: Sequence[ListedSources]
) -> list[Unit]:
    """All edits of an editor."""
    seeds = [*editor.choice.seeds] or [editor.count, context.flow.seed]
    most = max(1, max(UNIT_EDITS, editor.spec.max_batch) // editor.count)
    units = []
    for part in sources:
        for first in range(0, len(part.ids), most):
            contents = part.contents[first : first + most]
            key = settings_hash("edits", editor.label, editor.spec.name, editor.spec.revision, editor.settings_hash, seeds, contents)
            rows = len(contents) * editor.count
            task = EditTask(part.path, rows, _journal(folder, key), config.failures.seconds, span=(first, len(contents)))
            name = f"{editor.name} for {len(contents)} sources"
            units.append(Unit(key, task, rows, name=name, family=f"{part.ids[first]} {editor.id}"))
    return units


def again(folder: StepFolder, of: Unit, retries: Sequence[Retry]) -> Unit:
    """Some candidates of a unit, made again. Its key names them, their seeds and flags so far and how often they failed; no policy."""
    key = settings_hash("edits again", of.key, [asdict(retry) for retry in retries])
    task = replace(of.payload, rows=len(retries), retries=tuple(retries), journal=_journal(folder, key), deaths={})
    return replace(of, key=key, payload=task, rows=len(retries), name=f"{len(retries)} again of {of.name}")


def kept(folder: StepFolder, sources: Sequence[ListedSources]) -> set[str]:
    """Keys of the finished units of edits whose first source is one of these, also by editors that are no longer listed."""
    here = {source_id for part in sources for source_id in part.ids}
    return {key for key, record in unit_log.sound(folder).items() if record.family.split(" ", 1)[0] in here}


def begun(folder: StepFolder) -> set[str]:
    """Ids of the editors that have made edits in this run directory."""
    return {record.family.split(" ", 1)[-1] for record in unit_log.sound(folder).values()}


def _journal(folder: StepFolder, key: str) -> str:
    return str(folder.path / JOURNALS / key)
