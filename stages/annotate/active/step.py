"""Step next-annotations: choose the groups to rate next, as a list for `pipeline annotate export --groups`.

In: the candidates of a run, its ledger, and a reward model (the one trained in the run, or another). Out: ``next-annotations/groups.csv``,
a row per chosen group with the numbers behind the choice (:mod:`stages.annotate.active.information`), best first; and the model's scores.

Only groups of the training split are chosen, so that the held-out groups stay a representative sample. The disagreement of model and raters
is measured on rated held-out groups, which the model has not been trained on; if there are none, on all rated groups. The strategy
``random`` draws by a seeded hash and needs no model. Unit of resume: a part of the candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.annotate.active.information import ChosenGroup, ScoredGroup, choose
from stages.annotate.packet.write import csv_table
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import accepted_ratings
from stages.annotate.ratings.groups import CompleteGroup, complete_groups
from stages.annotate.ratings.rating_task import generated_task
from stages.context import Context
from stages.engine import steps, storage
from stages.engine.ids import settings_hash, uniform
from stages.engine.rundir import Index, StepFolder
from stages.engine.stored_images import ImageReference, references
from stages.engine.units import Done, Unit
from stages.scoring.rows import Shown, score_units, scorer_revision

STEP = steps.NEXT_ANNOTATIONS
LIST = "groups.csv"
COLUMNS = ("rank", "group_id", "task", "information", "disagreement", "coverage", "worth", "reason")

Strategy = Literal["information", "random"]


def run(context: Context, *, count: int, strategy: Strategy, model: str | Path | None = None) -> Index:
    """Write the list, replacing an earlier one; returns the step's index, whose ``results`` count groups by kind of edit.

    Raises ``ValueError`` when generate is not done, when there is no model, and when every group of the training split is rated.
    """
    if count < 1:
        raise ValueError(f"--count {count}: give the number of groups to choose, at least 1")
    if strategy == "random" and model is not None:
        raise ValueError(f"--model {model}: --strategy random uses no model; leave it out")
    source_folder, rated = context.run.step(steps.GENERATE), context.run.step(steps.ANNOTATE)
    inputs = {steps.GENERATE: source_folder.sound().fingerprint}
    rating_task = generated_task(context)
    complete: dict[str, CompleteGroup] = {}
    if rated.index() is not None:
        accepted, decision = accepted_ratings(context.run)
        complete = {group.source_id: group for group in complete_groups(ledger.scores_only(accepted), rating_task)[0]}
        inputs |= {steps.ANNOTATE: rated.require().fingerprint} | decision
    split, task = (source_folder.column("sources", "source_id", name) for name in ("split", "task"))
    pool = [group for group in rating_task.sampled if split[group] == "train" and group not in complete]
    if not pool:
        raise ValueError("every group of the training split is rated; generate more sources to have more to rate")
    folder = context.run.step(STEP)
    settings: dict[str, Any] = {"count": count, "strategy": strategy, "seed": context.flow.seed}
    if strategy == "random":
        draft, _ = folder.begin(settings=settings, inputs=inputs, force=True)
        drawn = sorted(pool, key=lambda group: (uniform("next to annotate", context.flow.seed, group), group))[:count]
        rows = [{"group_id": group, "task": task[group], "reason": "drawn at random"} for group in drawn]
        return _publish(folder, draft, rows, None)
    directory = Path(model).absolute() if model is not None else context.run.step(steps.TRAIN_REWARD).path / "model"
    inputs["model"] = scorer_revision(directory)
    draft, _ = folder.begin(settings=settings, inputs=inputs, force=True)
    reference = [group for group in complete if split[group] == "validation"] or list(complete)
    sampled = {name: rating_task.sampled[name] for name in [*pool, *reference]}
    done = _score(context, folder, source_folder, directory, inputs["model"], sampled)
    scored = _scored(folder, done, rating_task.sampled, task, complete)
    chosen = choose(
        [scored[group] for group in pool if group in scored],
        [scored[group] for group in reference if group in scored],
        Counter(task[group] for group in complete if split[group] == "train"),
        count,
    )
    return _publish(folder, draft, [_row(choice) for choice in chosen], done)


def _score(
    context: Context, folder: StepFolder, source: StepFolder, model: Path, revision: str, sampled: Mapping[str, tuple[str, ...]]
) -> Done:
    """Scores of the sampled candidates of groups; a unit is the groups of a part of the sources."""
    artifacts = source.require().artifacts
    edits = references(source, "candidates", "candidate_id", {candidate for candidates in sampled.values() for candidate in candidates})
    contents = {str(source.path / part.path): part.sha256 for part in artifacts["candidates"]}
    units = []
    for part in artifacts["sources"]:
        there = source.read_table("sources", [part], ["source_id"])["source_id"].to_pylist()
        wanted = {name: {candidate: edits[candidate] for candidate in sorted(sampled[name])} for name in sorted(sampled.keys() & {*there})}
        if wanted:
            rows = sum(map(len, wanted.values()))
            made = {contents[edit.file.path] for candidates in wanted.values() for edit in candidates.values()}
            key = settings_hash(STEP, part.sha256, sorted(made), {name: [*candidates] for name, candidates in wanted.items()}, revision)
            units.append(Unit(key, (str(source.path / part.path), wanted), rows))
    return score_units(context, folder, units, model, revision, _samples)


def _samples(piece: tuple[str, Mapping[str, Mapping[str, ImageReference]]]) -> Shown:
    from reward import EditSample

    sources_file, wanted = piece
    columns = ["source_id", "image", "instruction", "task"]
    sources = {row["source_id"]: row for row in storage.read_table(sources_file, columns, [("source_id", "in", [*wanted])]).to_pylist()}
    samples = []
    for name, candidates in wanted.items():
        source = sources[name]
        for candidate, edited in candidates.items():
            sample = EditSample(source["image"]["bytes"], source["instruction"], edited.read())
            samples.append((candidate, sample, source["task"]))
    return samples


def _scored(
    folder: StepFolder, done: Done, sampled: Mapping[str, tuple[str, ...]], task: Mapping[str, str], complete: Mapping[str, CompleteGroup]
) -> dict[str, ScoredGroup]:
    """Groups whose candidates all have a score; the candidates without one are in the quarantine."""
    table = folder.read_table("scores", done.artifacts().get("scores", []), ["sample_id", "overall_mean", "overall_sigma"])
    score = {row["sample_id"]: row for row in table.to_pylist()}
    groups = {}
    for name, candidates in sampled.items():
        ids = sorted(candidates)
        if all(candidate in score for candidate in ids):
            mean, sigma = (np.array([score[c][column] for c in ids]) for column in ("overall_mean", "overall_sigma"))
            rated = complete[name].scores.sum(1) if name in complete else None
            groups[name] = ScoredGroup(name, task[name], mean, sigma, rated)
    return groups


def _row(choice: ChosenGroup) -> dict[str, Any]:
    figures = {name: f"{getattr(choice, name):.4f}" for name in ("information", "disagreement", "coverage", "worth")}
    kind = choice.task.replace("-", " ") or "its kind"
    parts = [f"{choice.information:.2f} nats over its pairs"]
    if abs(choice.disagreement - 1) >= 0.05:
        parts.append(f"the model errs {choice.disagreement:.2f} times as often as on average in {kind}")
    if abs(choice.coverage - 1) >= 0.05:
        parts.append(f"{kind} is rated {'less' if choice.coverage > 1 else 'more'} than its share")
    return {"group_id": choice.group_id, "task": choice.task, **figures, "reason": "; ".join(parts)}


def _publish(folder: StepFolder, draft: Index, rows: list[dict[str, Any]], done: Done | None) -> Index:
    table = csv_table([{"rank": rank, **row} for rank, row in enumerate(rows, start=1)], COLUMNS)
    sha256 = storage.publish_bytes(folder.path / LIST, table)
    results = {"groups": len(rows), "by_task": dict(sorted(Counter(row["task"] for row in rows).items()))}
    return folder.publish(draft, **(done.tables() if done else {}), files={LIST: sha256}, results=results)
