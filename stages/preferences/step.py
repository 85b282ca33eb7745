"""Step preferences: preference pairs from ratings (paper 2.1 and 3.3).

A candidate's score is the mean of its accepted ratings (:func:`stages.annotate.ratings.accepted.accepted_ratings`). Only raters who rated a
whole group count, so both candidates of a pair have the same raters. All pairs of a group become rows; :mod:`reward.inputs.groups` treats
the ties. The split is that of the source. Groups that nobody rated completely are quarantined, and so are those of the training split that
a benchmark has, where the configuration says so (:mod:`stages.preferences.decontamination`). Unit of resume: the step; for that comparison
some of its images.

``statistics.json`` is for the report:
``dimensions``, ``scale``, ``ties`` (the setting);
``groups``: complete groups per split; ``pairs``: rows per split and kind: ``strict``, ``tie``, and the origins that ``ties`` makes;
``tie_shares``: of all pairs per dimension, ``overall`` and ``opposed``, each pair counted once; ``paper_tie_shares``: the paper's;
``win_rates``: per editor, dimension and ``overall`` an estimate;
``score_shares``: ``all``, ``by_editor`` and ``by_task``, each by name and dimension ``{ratings, mean, levels: {level: share}}``;
``raters``: per rater and dimension ``{ratings, mean, compared, difference}``, the difference from other raters of the same candidates;
``rater_agreement``: per dimension the statistics of :mod:`stages.annotate.agreement.alpha`, and under ``overall`` those on pair directions;
a reward model's pair accuracy is compared with ``rater_predicts_rater``;
``made_elsewhere``: of candidates made elsewhere, what :mod:`stages.preferences.made_elsewhere` lists.
An estimate is ``{value, low, high, n}``, or has ``value`` null and a ``note``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from reward.inputs.groups import Preference, Ties, build_preferences
from stages.annotate.agreement import alpha as agreement
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import accepted_ratings
from stages.annotate.ratings.groups import CompleteGroup, complete_groups
from stages.annotate.ratings.rating_task import RatingTask, generated_task
from stages.contamination import compare
from stages.context import Context
from stages.engine import contracts, steps, storage
from stages.engine.ids import content_id
from stages.engine.rundir import Index, StepFolder
from stages.engine.units import publish_unit
from stages.preferences import decontamination, made_elsewhere, statistics
from stages.preferences.config import PreferencesConfig
from stages.preferences.groups import label_of

STEP = steps.PREFERENCES
ORIGINS = {"opposed": ("tie-disentangled",), "all": ("tie-disentangled", "tie-doubled"), "soft": ("tie-soft",), "off": ()}
"""Origins other than ``plain``, by the setting ``ties``."""


def run(context: Context) -> Index:
    """Run the step; returns its index.

    Raises ``ValueError`` when the ratings are of other candidates or newer than the quality decision, when no group is complete, and when
    an image is in two splits.
    """
    config: PreferencesConfig = context.flow.preferences
    generate, annotate = context.run.step(steps.GENERATE), context.run.step(steps.ANNOTATE)
    compares = config.contamination if config.contamination and config.contamination.references else None
    left_out = {"workers"} if compares else {"workers", "contamination"}
    settings = {"preferences": config.model_dump(mode="json", exclude=left_out), "seed": context.flow.seed}
    inputs = {steps.GENERATE: generate.sound().fingerprint, steps.ANNOTATE: annotate.require().fingerprint}
    if annotate.require().inputs.get(steps.GENERATE) != inputs[steps.GENERATE]:
        raise ValueError(f"the ratings in {annotate.path} are not of the candidates in {generate.path}; ingest ratings of these")
    accepted, decision = accepted_ratings(context.run)
    ratings = ledger.scores_only(accepted)
    planned = compare.units(compares, decontamination.KEY) if compares else {}
    inputs |= decision | compare.inputs(planned)
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    task = generated_task(context)
    sources = {row["source_id"]: row for row in generate.read("sources", ["source_id", "split", "group", "task", "benchmark"]).to_pylist()}
    _reject_leaks(sources)
    groups, quarantine = complete_groups(ratings, task)
    artifacts, compared = {}, {}
    if compares:
        training = {group.source_id for group in groups if sources[group.source_id]["split"] == "train"}
        known = decontamination.check(context, folder, compares, planned, training, workers=config.workers)
        groups = [group for group in groups if group.source_id not in known.dropped]
        quarantine += known.dropped.values()
        artifacts, compared = known.artifacts, {compare.NAME: known.summary}
    found = (rows(group, task.dimensions, config.ties, split=sources[group.source_id]["split"]) for group in groups)
    pairs = contracts.table("pairs", [row for of_group in found for row in of_group])
    if not pairs.num_rows:
        example = f", e.g. {quarantine[0].position}: {quarantine[0].message}" if quarantine else ""
        raise ValueError(f"the ratings in {annotate.path} give no pair{example}; ingest ratings of whole groups")
    quarantine_table = contracts.table("quarantine", [asdict(row) for row in quarantine])
    parts = publish_unit(folder.path, draft.key, {"pairs": pairs, "quarantine": quarantine_table})
    figures = _statistics(ratings, groups, pairs, config, task, sources, generate, context.flow.seed)
    split_of = {name: source["split"] for name, source in sources.items()}
    editor_of = generate.column("candidates", "candidate_id", "editor")
    elsewhere = made_elsewhere.of(generate, annotate, groups, split_of, editor_of, task.dimensions)
    figures |= {"made_elsewhere": elsewhere} if elsewhere else {}
    return folder.publish(
        draft,
        artifacts=artifacts | {name: [part] for name, part in parts.items() if part.rows},
        files={"statistics.json": storage.publish_json(folder.path / "statistics.json", figures)},
        counts={"in": len(task.sampled), "out": len(groups), "quarantined": len(quarantine)},
        quarantined=dict(sorted(Counter(row.reason for row in quarantine).items())),
        results={name: figures[name] for name in ("groups", "pairs", "tie_shares")}
        | {"rater_predicts_rater": figures["rater_agreement"][agreement.OVERALL]["rater_predicts_rater"]}
        | compared,
    )


def _reject_leaks(sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``ValueError`` for sources that share an image but not a split."""
    first: dict[str, Mapping[str, Any]] = {}
    for source in sources.values():
        other = first.setdefault(source["group"], source)
        if other["split"] != source["split"]:
            raise ValueError(
                f"the image of group {source['group']} is in two splits: source {other['source_id']} is in {other['split']}, "
                f"{source['source_id']} in {source['split']}; sources that share an image must share a split"
            )


def rows(group: CompleteGroup, dimensions: Sequence[str], ties: Ties, *, split: str) -> list[dict[str, Any]]:
    """Rows of the ``pairs`` contract; the inverse is :func:`stages.preferences.groups.load_groups`."""
    scores = [dict(zip(dimensions, row.tolist(), strict=True)) for row in group.scores]
    return [_row(group, split, scores, preference) for preference in build_preferences(scores, dimensions, ties)]


def _row(group: CompleteGroup, split: str, scores: list[dict[str, float]], preference: Preference) -> dict[str, Any]:
    a, b, label = preference.a, preference.b, label_of(preference.overall)
    return {
        "pair_id": content_id("pair", group.candidates[a], group.candidates[b], label),
        "source_id": group.source_id,
        "split": split,
        "candidate_a": group.candidates[a],
        "candidate_b": group.candidates[b],
        "dimensions": [
            {"dimension": dimension, "score_a": scores[a][dimension], "score_b": scores[b][dimension], "label": label_of(target)}
            for dimension, target in zip(scores[a], preference.dimensions, strict=True)
        ],
        "overall_a": sum(scores[a].values()),
        "overall_b": sum(scores[b].values()),
        "gap": preference.gap,
        "label": label,
        "origin": preference.origin,
        "raters": group.raters,
    }


def _statistics(
    ratings: pa.Table,
    groups: list[CompleteGroup],
    pairs: pa.Table,
    config: PreferencesConfig,
    task: RatingTask,
    sources: Mapping[str, Mapping[str, Any]],
    generate: StepFolder,
    seed: int,
) -> dict[str, Any]:
    levels = task.scale.levels
    editor_of = generate.column("candidates", "candidate_id", "editor")
    task_of = {name: source["task"] for name, source in sources.items()}
    return {
        "dimensions": list(task.dimensions),
        "scale": levels,
        "ties": config.ties,
        "groups": dict(sorted(Counter(sources[group.source_id]["split"] for group in groups).items())),
        "benchmarks": dict(sorted(Counter(name for group in groups if (name := sources[group.source_id]["benchmark"])).items())),
        "pairs": _pair_counts(pairs, ORIGINS[config.ties]),
        "tie_shares": statistics.tie_shares(groups, task.dimensions),
        "paper_tie_shares": statistics.PAPER_TIES,
        "win_rates": statistics.win_rates(groups, editor_of, task.dimensions, seed=seed),
        "score_shares": {
            "all": statistics.score_shares(ratings, dict.fromkeys(editor_of, "all"), "candidate_id", levels),
            "by_editor": statistics.score_shares(ratings, editor_of, "candidate_id", levels),
            "by_task": statistics.score_shares(ratings, task_of, "source_id", levels),
        },
        "raters": statistics.severity(ratings),
        "rater_agreement": agreement.summary(ratings, levels, seed=seed),
    }


def _pair_counts(pairs: pa.Table, origins: Sequence[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for split, label, origin in zip(*(pairs[name].to_pylist() for name in ("split", "label", "origin")), strict=True):
        kinds = counts.setdefault(split, dict.fromkeys(("strict", "tie", *origins), 0))
        kinds[origin if origin != "plain" else "tie" if label == "tie" else "strict"] += 1
    return dict(sorted(counts.items()))
