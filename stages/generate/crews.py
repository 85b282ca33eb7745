"""All edits: a job per editor, and in it a unit per published part of the sources.

A worker of an editor does units of that editor only, so that few models are loaded; workers of several editors run at the same time. A
unit's key names its editor, settings, seeds and sources, and nothing of other editors: when one is added or changed, only its units are
made. Units of editors that are no longer listed stay in the run directory as long as their sources do, since they took long to make.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stages.context import Context
from stages.engine import unit_log
from stages.engine.cluster import Cluster
from stages.engine.ids import settings_hash
from stages.engine.run_units import Job, run_jobs
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Done, Unit, UnitRecord
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import EditTask
from stages.generate.edits import EditWork
from stages.generate.journal import Journal

JOURNALS = "unfinished"
"""Folder of what unfinished units have made so far."""
SECONDS = 1.0
"""Taken for an edit of an editor whose time is not known, to compare the work of editors."""


def make_candidates(
    context: Context, folder: StepFolder, config: GenerateConfig, editors: Sequence[PlannedEditor], sources: Sequence[Part]
) -> list[Done]:
    """All candidates, by editor. Raises ``ValueError`` naming the editors that could not go on, after the others have finished."""
    failed: dict[str, Exception] = {}
    jobs = []
    for number, editor in enumerate(editors):
        gpus = gpus_of(editor, context.cluster)
        units = [unit(context, folder, config, editor, part) for part in sources]
        jobs.append(
            Job(
                units,
                partial(EditWork, context.flow, number),
                editor.choice.workers or len(units),
                name=f"{editor.name}, {editor.key}",
                num_cpus=0.0 if gpus else 1.0,
                num_gpus=gpus,
                threads=1 if gpus else 2,
                in_flight=1 if gpus else 2,  # a GPU has units of minutes: none waits behind another while a process has nothing to do
                seconds=editor.spec.seconds or SECONDS,
                phase="candidates",
            )
        )

    for journal in (folder.path / JOURNALS).glob("*"):
        Journal(journal).begin(())  # a driver that was killed left what was in work, which no candidate is to blame for

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
        others = "; the other editors have finished" if len(failed) < len(editors) else ""
        raise ValueError(
            f"{'; '.join(str(failure) for failure in failed.values())}{others}; what is made stays: run it again after a repair"
        )
    logged = unit_log.sound(folder)
    return [Done([logged[unit.key] for unit in job.units]) for job in jobs]


def unit(context: Context, folder: StepFolder, config: GenerateConfig, editor: PlannedEditor, part: Part) -> Unit:
    """The edits of an editor for one part of the sources."""
    seeds = [*editor.choice.seeds] or [editor.count, context.flow.seed]
    key = settings_hash("edits", editor.spec.name, editor.spec.revision, editor.settings_hash, seeds, config.outputs, part.sha256)
    rows = part.rows * editor.count
    task = EditTask(str(folder.path / part.path), rows, str(folder.path / JOURNALS / key), config.failures.seconds)
    return Unit(key, task, rows, name=f"{editor.name} for {part.rows} sources", family=family(editor, part))


def family(editor: PlannedEditor, part: Part) -> str:
    """What the log says of a unit: its sources, its editor and the settings."""
    return f"{part.sha256[:24]} {editor.id}"


def kept(folder: StepFolder, sources: Sequence[Part]) -> set[str]:
    """Keys of all finished units of edits of these sources, also by editors that are no longer listed."""
    here = {part.sha256[:24] for part in sources}
    return {key for key, record in unit_log.sound(folder).items() if record.family.split(" ", 1)[0] in here}


def forget(folder: StepFolder, made: Sequence[Done]) -> None:
    """Remove units in which no candidate could be made, so that a later command tries them again; not those of the published index."""
    index = folder.index()
    published = {part.path for part in index.artifacts.get("candidates", [])} if index else set()
    for record in (record for of_editor in made for record in of_editor.records):
        if record.parts["candidates"].path not in published:
            shutil.rmtree(folder.path / "units" / record.key, ignore_errors=True)


def tidy(folder: StepFolder) -> None:
    """Remove the journals of finished units, which a kill may have left."""
    logged = unit_log.sound(folder)
    for journal in (folder.path / JOURNALS).glob("*"):
        if Path(journal).name in logged:
            shutil.rmtree(journal, ignore_errors=True)


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
