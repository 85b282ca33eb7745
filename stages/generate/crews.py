"""All edits: a job per editor, and in it a unit per published part of the sources.

A worker of an editor does units of that editor only, so that few models are loaded; workers of several editors run at the same time. A
unit's key names its editor, settings, seeds and sources, and nothing of other editors: when one is added or changed, only its units are
made. Units of editors that are no longer listed stay in the run directory as long as their sources do, since they took long to make.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stages.context import Context
from stages.engine import contracts, unit_log
from stages.engine.cluster import Cluster
from stages.engine.ids import settings_hash
from stages.engine.run_units import Job, run_jobs
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Unit, UnitRecord, publish_table
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import EditTask, Retry
from stages.generate.edits import EditWork
from stages.generate.journal import Journal
from stages.generate.settling import FAILED, settle

JOURNALS = "unfinished"
"""Folder of what unfinished units have made so far."""
EDITS_PER_LOAD = 64
"""Edits that are made again come in small units: so many are worth another process that loads the editor."""
SECONDS = 1.0
"""Taken for an edit of an editor whose time is not known, to compare the work of editors."""


@dataclass
class Made:
    """What became of the edits of one editor. ``parts``: its candidates, also those that failed. ``records``: of all its units."""

    parts: list[Part] = field(default_factory=list)
    records: list[UnitRecord] = field(default_factory=list)


def make_candidates(
    context: Context, folder: StepFolder, config: GenerateConfig, editors: Sequence[PlannedEditor], sources: Sequence[Part]
) -> list[Made]:
    """All candidates, by editor. Raises ``ValueError`` naming the editors that could not go on, after the others have finished; and where
    no candidate could be made.

    First all edits of the plan are made, then those that the policies want again (:mod:`stages.generate.settling`), and so on.
    """
    for journal in (folder.path / JOURNALS).glob("*"):
        Journal(journal).begin(())  # a driver that was killed left what was in work, which no candidate is to blame for
    made = [Made() for _ in editors]
    failed: list[list[dict[str, Any]]] = [[] for _ in editors]
    units = [[unit(context, folder, config, editor, part) for part in sources] for editor in editors]
    while any(units):
        logged = _run(context, folder, config, editors, units)
        again: list[list[Unit]] = [[] for _ in editors]
        for number, of_editor in enumerate(units):
            for done in of_editor:
                settled = settle(folder, logged[done.key], done.payload.retries, config)
                made[number].parts += settled.kept
                made[number].records.append(logged[done.key])
                failed[number] += settled.failed
                again[number] += [retry_unit(folder, done, retries) for retries in settled.again]
        units = again
    if not any(of_editor.parts for of_editor in made):
        _forget(folder, made)
        rows = [row for of_editor in failed for row in of_editor]
        raise ValueError(
            f"none of the {len(rows):,} candidates could be made: {rows[0]['error']}; after a repair, e.g. of generate.editors or "
            "generate.outputs, the same command tries them again"
        )
    for of_editor, rows in zip(made, failed, strict=True):
        of_editor.parts += publish_table(folder, "candidates", contracts.table("candidates", rows))
    return made


def _run(
    context: Context, folder: StepFolder, config: GenerateConfig, editors: Sequence[PlannedEditor], units: Sequence[Sequence[Unit]]
) -> dict[str, UnitRecord]:
    """The records of units, given by editor, by their keys; those that are missing are made."""
    failed: dict[str, Exception] = {}
    jobs = []
    for number, (editor, of_editor) in enumerate(zip(editors, units, strict=True)):
        if not of_editor:
            continue
        gpus = gpus_of(editor, context.cluster)
        jobs.append(
            Job(
                of_editor,
                partial(EditWork, context.flow, number),
                editor.choice.workers or _processes(of_editor),
                name=f"{editor.name}, {editor.key}",
                num_cpus=0.0 if gpus else 1.0,
                num_gpus=gpus,
                threads=2,
                seconds=editor.spec.seconds or SECONDS,
                phase="candidates",
                show=waiting,
            )
        )

    def finished(record: UnitRecord) -> None:
        shutil.rmtree(folder.path / JOURNALS / record.key, ignore_errors=True)

    run_jobs(
        folder,
        jobs,
        cluster=context.cluster,
        workers=workers_of(config, editors, context.cluster),
        rows_are="edits",
        finished=finished,
        failed=None if config.failures.stop_all else failed.__setitem__,
    )
    if failed:
        others = "; the other editors have finished" if len(failed) < len(jobs) else ""
        raise ValueError(
            f"{'; '.join(str(failure) for failure in failed.values())}{others}; what is made stays: run it again after a repair"
        )
    return unit_log.sound(folder)


def _processes(units: Sequence[Unit]) -> int:
    """At most at a time."""
    again = sum(one.rows for one in units if one.payload.retries)
    return -(-again // EDITS_PER_LOAD) or len(units)


def waiting(figures: Sequence[Mapping[str, float]]) -> str:
    """For which share of their time the loaded editors had nothing to edit."""
    idle, busy = (sum(one.get(name, 0.0) for one in figures) for name in ("waiting", "seconds"))
    return f"editors wait {idle / (idle + busy):.1%}" if busy else ""


def unit(context: Context, folder: StepFolder, config: GenerateConfig, editor: PlannedEditor, part: Part) -> Unit:
    """The edits of an editor for one part of the sources."""
    seeds = [*editor.choice.seeds] or [editor.count, context.flow.seed]
    content = config.outputs.content_filter
    key = settings_hash("edits", editor.label, editor.spec.name, editor.spec.revision, editor.settings_hash, seeds, content, part.sha256)
    rows = part.rows * editor.count
    task = EditTask(str(folder.path / part.path), rows, str(folder.path / JOURNALS / key), config.failures.seconds)
    return Unit(key, task, rows, name=f"{editor.name} for {part.rows} sources", family=family(editor, part))


def retry_unit(folder: StepFolder, of: Unit, retries: Sequence[Retry]) -> Unit:
    """Some candidates of a unit, made again. Its key names them, their seeds and flags so far and how often they failed; no policy."""
    key = settings_hash("edits again", of.key, [asdict(retry) for retry in retries])
    task = replace(of.payload, rows=len(retries), retries=tuple(retries), journal=str(folder.path / JOURNALS / key), deaths={})
    return replace(of, key=key, payload=task, rows=len(retries), name=f"{len(retries)} again of {of.name}")


def family(editor: PlannedEditor, part: Part) -> str:
    """What the log says of a unit: its sources, its editor and the settings."""
    return f"{part.sha256[:24]} {editor.id}"


def kept(folder: StepFolder, sources: Sequence[Part]) -> set[str]:
    """Keys of all finished units of edits of these sources, also by editors that are no longer listed."""
    here = {part.sha256[:24] for part in sources}
    return {key for key, record in unit_log.sound(folder).items() if record.family.split(" ", 1)[0] in here}


def _forget(folder: StepFolder, made: Sequence[Made]) -> None:
    """Remove units in which every edit failed, so that a later command tries them again. A published index has its failures itself."""
    for record in (record for of_editor in made for record in of_editor.records):
        if FAILED in record.parts and record.parts[FAILED].rows == record.rows_in:
            shutil.rmtree(folder.path / "units" / record.key, ignore_errors=True)


def tidy(folder: StepFolder) -> None:
    """Remove the journals of finished units, which a kill may have left."""
    logged = unit_log.sound(folder)
    for journal in (folder.path / JOURNALS).glob("*"):
        if Path(journal).name in logged:
            shutil.rmtree(journal, ignore_errors=True)


def check(context: Context, folder: StepFolder, editors: Sequence[PlannedEditor]) -> None:
    """Raise ``ValueError`` naming the key of an editor that cannot begin here: too few GPUs, or a server that does not answer. An editor
    that has made edits in this run directory is not asked: it may have made them all."""
    begun = {record.family.split(" ", 1)[-1] for record in unit_log.sound(folder).values()}
    for editor in (editor for editor in editors if editor.id not in begun):
        if editor.choice.num_gpus:
            gpus_of(editor, context.cluster)
        if lack := editor.spec.unready(editor.settings):
            raise ValueError(f"{editor.key}: {lack}")


def gpus_of(editor: PlannedEditor, cluster: Cluster) -> float:
    """GPUs of one process. Raises ``ValueError`` when the configuration asks for more than the cluster has on one machine."""
    wanted = editor.choice.num_gpus
    if wanted is None:
        return 1.0 if editor.spec.memory_gb and cluster.gpus else 0.0
    if wanted:
        cluster.need(1, num_cpus=0, num_gpus=wanted, setting=f"{editor.key}.num_gpus")
    return wanted


def workers_of(config: GenerateConfig, editors: Sequence[PlannedEditor], cluster: Cluster) -> int:
    """Ray actors at a time."""
    gpus = cluster.gpus if any(editor.spec.memory_gb for editor in editors) else 0
    return config.workers or max(2, gpus)
