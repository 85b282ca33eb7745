"""Evaluate the editor: all systems edit the same held-out items, and each judge scores all edits in one pass.

``evaluate_editor`` names items, judges and further systems; this step knows no particular one. Edits are made in one phase and judged in
the next, so that another judge makes no edit again. Copying the source and, where it is known, the exact edit are rows of the result, as
lower and upper bound. Differences are paired by item (`stages.evaluate_editor.summary`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any

from stages.config import FlowConfig
from stages.context import Context
from stages.editors.fine_tuned import CUT
from stages.engine import steps, storage, unit_log
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Index, StepFolder
from stages.engine.units import Done, Unit, UnitRecord
from stages.evaluate_editor import generation, judging, measuring
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.contamination import known_sources, seen_items
from stages.evaluate_editor.evaluation import caveats, evaluate, preservation
from stages.evaluate_editor.generation import Piece
from stages.evaluate_editor.judges.judge import Judge
from stages.evaluate_editor.judging import JudgingPiece, judged_edits
from stages.evaluate_editor.room import check_encodings
from stages.evaluate_editor.systems import BASE, COPY, EXACT, TRAINED, System, check_ready, systems

__all__ = ["COPY", "EXACT", "STEP", "run"]

STEP = steps.EVALUATE_EDITOR
ENCODINGS = "encodings"
"""Folder of what trained editors of one base share; it goes when all edits are made."""
REPLIES = "replies"
"""Folder of the replies of judges that cost something; it stays when the step is made again."""


def check(context: Context) -> None:
    """Raise ``ValueError`` for what is missing, before any step of the command begins: items, editors, servers, keys, room.

    Nothing is looked at where the step is done.
    """
    config = context.flow.evaluate_editor
    if config is None or (context.run.step(STEP).index() is not None and not context.force):
        return
    config.items.identity(context.flow)
    finetune = context.flow.finetune
    compared = systems(context.flow, config, (BASE, *finetune.arms) if finetune is not None else (), None)
    if not unit_log.sound(context.run.step(STEP)):  # later those are asked that have edits to make
        check_ready(compared)
    measuring.check(config)
    for judge in (config.judge, *config.further_judges):
        judge.check()
    if finetune is not None and context.run.step(steps.FINETUNE).index() is None:  # not only when the arms are trained
        check_encodings(context.run.step(STEP).path / ENCODINGS, context.flow, config)


def run(context: Context) -> Index:
    """Edit and judge what is not judged yet; returns the step's index."""
    config: EvaluateEditorConfig = context.need("evaluate_editor")
    judges = (config.judge, *config.further_judges)
    identity = config.items.identity(context.flow)
    finetuned = context.run.step(steps.FINETUNE)
    trained = finetuned.sound() if context.flow.finetune is not None else None
    arms = trained.results["arms"] if trained else ()
    folder = context.run.step(STEP)
    compared = systems(context.flow, config, arms, finetuned.path / "editors", folder.path / ENCODINGS)
    settings = {
        "evaluate_editor": config.model_dump(mode="json", include={"reference_arm", "bootstrap", "seed"}),
        **identity,
        "items": config.items.count(context.flow),
        "systems": [system.name for system in compared],
        "judge_revisions": [judge.revision for judge in judges],
    }
    inputs = {steps.FINETUNE: trained.fingerprint} if trained else {}
    inputs |= {f"system {system.name}": settings_hash(system.key) for system in compared if system.name not in arms}
    inputs |= known_sources(context, config) | measuring.inputs(context, config)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    for judge in judges:
        judge.check()
    made = _generate(context, folder, config, compared, identity)
    shutil.rmtree(folder.path / ENCODINGS, ignore_errors=True)
    _require_edits(folder, made)
    pieces = _pieces(context, folder, config, made)
    judged = [_judge(context, folder, config, judge, pieces) for judge in judges]
    measured = measuring.measure(context, folder, config, pieces)
    results = []
    for judge, verdicts in zip(judges, judged, strict=True):
        of_judge = verdicts.artifacts()
        tables = (folder.read_table(name, of_judge.get(name, ())) for name in ("verdicts", "subscores"))
        results.append(evaluate(judged_edits(*tables), config, judge, context.flow.seed))
    evaluation = results[0] | ({"further_judges": results[1:]} if results[1:] else {})
    parts = made.artifacts()["benchmark_edits"]
    edits = folder.read_table("benchmark_edits", parts, ["arm", "changed_share", "psnr", "ssim"])
    seen = seen_items(context, folder, config, parts)
    evaluation |= {"contamination": seen} if seen else {}
    if measured:
        parts = [part for one in measured for part in one.artifacts()["measures"]]
        evaluation |= {"measures": measuring.means(folder.read_table("measures", parts))}
    evaluation |= {"preservation": preservation(edits), "seed": context.flow.seed, "resamples": config.bootstrap}
    evaluation |= {"caveats": [*caveats(config, context.flow), *_cut_instructions(compared, made)]}
    sha256 = storage.publish_json(folder.path / "evaluation.json", evaluation)
    artifacts: dict[str, list] = {}
    for one in (made, *judged, *measured):
        for name, of_name in one.artifacts().items():
            artifacts.setdefault(name, []).extend(of_name)
    return folder.publish(
        draft, artifacts=artifacts, counts=judged[0].counts(), files={"evaluation.json": sha256}, results=_results(evaluation)
    )


def _generate(context: Context, folder: StepFolder, config: EvaluateEditorConfig, compared: list[System], identity: dict[str, Any]) -> Done:
    """Edits of all systems."""
    count, size = config.items.count(context.flow), config.items.unit_items
    units = []
    for system in compared:
        for first in range(0, count, size):
            piece = Piece(system, first, min(size, count - first))
            seed = config.seed if system.kind == "editor" else None
            key = settings_hash(STEP, "edit", system.name, system.key, seed, identity, first, piece.count)
            units.append(Unit(key, piece, piece.count, name=f"{system.name}, items from {first}"))
    made = unit_log.sound(folder)
    waiting = {unit.payload.system.name for unit in units if unit.key not in made}
    editing = [system for system in compared if system.name in waiting]
    check_ready(editing)
    if any(system.editor == TRAINED for system in editing):
        check_encodings(folder.path / ENCODINGS, context.flow, config)
    return run_units(
        folder,
        units,
        partial(generation.make_work, _for_workers(context, config)),
        cluster=context.cluster,
        workers=config.workers,
        num_gpus=context.cluster.share_of_a_gpu(config.workers),
        phase="edit",
        rows_are="edits",
    )


def _cut_instructions(compared: Sequence[System], made: Done) -> list[str]:
    """How many instructions each system did not read in full, for a reader of the table. made: equally many units of each."""
    each = len(made.records) // len(compared)
    counts = [
        (system.name, int(sum(record.figures.get(CUT, 0) for record in made.records[number * each : (number + 1) * each])))
        for number, system in enumerate(compared)
    ]
    return [f"{name}: {count:,} instructions were cut at the length that the editor reads." for name, count in counts if count]


def _require_edits(folder: StepFolder, made: Done) -> None:
    """Raise ``ValueError`` for a system that has not a single edit, with the error of its first one."""
    rows = folder.read_table("benchmark_edits", made.artifacts()["benchmark_edits"], ["arm", "error"]).to_pylist()
    for name in dict.fromkeys(row["arm"] for row in rows):
        errors = [row["error"] for row in rows if row["arm"] == name]
        if all(errors):
            raise ValueError(f"evaluate_editor: {name} has no edit of any of the {len(errors):,} items; the first: {errors[0]}")


def _pieces(context: Context, folder: StepFolder, config: EvaluateEditorConfig, made: Done) -> list[tuple[str, JudgingPiece]]:
    """Files of edits with their hashes."""
    firsts = range(0, config.items.count(context.flow), config.items.unit_items)
    parts = [record.parts["benchmark_edits"] for record in made.records]
    return [
        (part.sha256, JudgingPiece(str(folder.path / part.path), firsts[number % len(firsts)], part.rows))
        for number, part in enumerate(parts)
    ]


def _judge(
    context: Context, folder: StepFolder, config: EvaluateEditorConfig, judge: Judge, pieces: Sequence[tuple[str, JudgingPiece]]
) -> Done:
    """One judge's verdicts on all edits. Where calls failed, edits get a second pass after all others; replies that came are kept."""
    workers = min(config.workers, judge.most_workers or config.workers)
    environment = {name: os.environ[name] for name in judge.variables}

    def judged(label: str, some: Sequence[tuple[str, JudgingPiece]]) -> list[UnitRecord]:
        units = [Unit(settings_hash(STEP, label, judge.revision, sha256), piece, piece.count) for sha256, piece in some]
        return run_units(
            folder,
            units,
            partial(judging.make_work, _for_workers(context, config), judge.absolute(), folder.path / REPLIES, environment),
            cluster=context.cluster,
            workers=workers,
            num_gpus=context.cluster.share_of_a_gpu(workers) if judge.needs_gpu else 0.0,
            threads=judge.units_at_once,
            phase=f"{label} {judge.label}",
            rows_are="edits",
            show=judge.meter,
        ).records

    records = judged("judge", pieces)
    failed = [number for number, record in enumerate(records) if record.figures.get(judging.FAILED_CALLS)]
    for number, record in zip(failed, judged("judge again", [pieces[number] for number in failed]), strict=True):
        records[number] = record
    return Done(records)


def _for_workers(context: Context, config: EvaluateEditorConfig) -> FlowConfig:
    return context.flow.model_copy(update={"evaluate_editor": config.model_copy(update={"items": config.items.absolute()})})


def _results(evaluation: dict[str, Any]) -> dict[str, Any]:
    """A few numbers of the headline."""
    arms = evaluation["arms"]
    overall = {name: entry["overall"] for name, entry in arms.items()}
    results = {"overall": overall, "differences": evaluation["differences"], "reference_arm": evaluation["reference_arm"]}
    failed = {name: entry["failed"] for name, entry in arms.items() if entry["failed"]}
    return results | ({"failed": failed} if failed else {})
