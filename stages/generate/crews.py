"""All edits: a job per editor, with its units (:mod:`stages.generate.edit_units`).

A worker of an editor does units of that editor only, so that few models are loaded; workers of several editors run at the same time.
Units of editors that are no longer listed stay in the run directory as long as their sources do, since they took long to make.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stages.config import FlowConfig
from stages.context import Context
from stages.editors import catalogue
from stages.engine import contracts, unit_log
from stages.engine.cluster import Cluster
from stages.engine.run_units import Job, run_jobs
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Unit, UnitRecord, publish_table
from stages.generate import content, edit_units
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.config import GenerateConfig
from stages.generate.edit_units import JOURNALS, ListedSources
from stages.generate.edits import EditWork
from stages.generate.journal import Journal
from stages.generate.settling import FAILED, settle

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
    context: Context,
    folder: StepFolder,
    config: GenerateConfig,
    editors: Sequence[PlannedEditor],
    sources: Sequence[ListedSources],
) -> list[Made]:
    """All candidates, by editor. Raises ``ValueError`` naming the editors that could not go on, after the others have finished; and where
    no candidate could be made.

    First all edits of the plan are made and seen by the content filter (:mod:`stages.generate.content`), then those that the policies want
    again (:mod:`stages.generate.settling`), and so on.
    """
    for journal in (folder.path / JOURNALS).glob("*"):
        Journal(journal).begin(())  # a driver that was killed left what was in work, which no candidate is to blame for
    made = [Made() for _ in editors]
    failed: list[list[dict[str, Any]]] = [[] for _ in editors]
    units = [edit_units.of_plan(context, folder, config, editor, sources) for editor in editors]
    while any(units):
        logged = _run(context, folder, config, editors, units)
        seen = content.filtered(context, folder, config, [one for of_editor in units for one in of_editor], logged)
        again: list[list[Unit]] = [[] for _ in editors]
        for number, of_editor in enumerate(units):
            for done in of_editor:
                settled = settle(folder, seen[done.key], done.payload.retries, config)
                made[number].parts += settled.kept
                made[number].records.append(logged[done.key])
                failed[number] += settled.failed
                again[number] += [edit_units.again(folder, done, retries) for retries in settled.again]
        units = again
    if not any(of_editor.parts for of_editor in made):
        _forget(folder, [record for of_editor in made for record in of_editor.records])
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
    jobs: list[Job] = []
    flow = for_workers(context.flow, config, editors)
    for number, (editor, of_editor) in enumerate(zip(editors, units, strict=True)):
        if not of_editor:
            continue
        gpus = gpus_of(editor, context.cluster)
        jobs.append(
            Job(
                of_editor,
                partial(EditWork, flow, number),
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

    def stopped(name: str, why: Exception) -> None:
        failed[name] = why
        if config.failures.stop_all:
            raise why

    try:
        run_jobs(
            folder,
            jobs,
            cluster=context.cluster,
            workers=workers_of(config, editors, context.cluster),
            rows_are="edits",
            finished=finished,
            failed=stopped,
        )
    finally:
        logged = unit_log.sound(folder)
        _forget(folder, [logged[one.key] for job in jobs if job.name in failed for one in job.units if one.key in logged])
    if failed:
        others = "; the other editors have finished" if len(failed) < len(jobs) else ""
        raise ValueError(
            f"{'; '.join(str(failure) for failure in failed.values())}{others}; what is made stays: run it again after a repair"
        )
    return logged


def for_workers(flow: FlowConfig, config: GenerateConfig, editors: Sequence[PlannedEditor]) -> FlowConfig:
    """The configuration with the settings of editors as they were checked here: paths among them are absolute."""
    choices = tuple(
        editor.choice.model_copy(update={"settings": editor.settings.model_dump(mode="json", include=set(editor.choice.settings))})
        for editor in editors
    )
    return flow.model_copy(update={"generate": config.model_copy(update={"editors": choices})})


def _processes(units: Sequence[Unit]) -> int:
    """At most at a time."""
    again = sum(one.rows for one in units if one.payload.retries)
    return -(-again // EDITS_PER_LOAD) or len(units)


def waiting(figures: Sequence[Mapping[str, float]]) -> str:
    """For which share of their time the loaded editors had nothing to edit."""
    idle, busy = (sum(one.get(name, 0.0) for one in figures) for name in ("waiting", "seconds"))
    return f"editors wait {idle / (idle + busy):.1%}" if busy else ""


def _forget(folder: StepFolder, records: Sequence[UnitRecord]) -> None:
    """Remove units in which every edit failed, so that a later command tries them again. A published index has its failures itself."""
    for record in records:
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
    begun = edit_units.begun(folder)
    for editor in (editor for editor in editors if editor.id not in begun):
        if editor.choice.num_gpus:
            gpus_of(editor, context.cluster)
        if lack := editor.spec.unready(editor.settings):
            raise ValueError(catalogue.under_key(lack, editor.key))


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
