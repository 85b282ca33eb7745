"""Step build-bench: an EditReward-Bench of 2-, 3- and 4-way comparisons from ratings of three or more experts (paper 2.3, A.3).

In: accepted ratings of one round, the generate step. Out: a step folder ``build-bench`` with the benchmark in the published layout
(``EditReward-Bench/``), ``tuples.csv`` (candidates, hardness and expert agreement of each tuple), ``adjudicate.csv`` (cells without a
majority, for a further expert to fill in) and ``summary.json``. Unit of resume: the step.

By default only held-out sources become items, so the benchmark shares no source image with training. Of identical images in a group only
the candidate with the first id is compared; otherwise a comparison could appear twice with contradicting labels.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stages.annotate.bench import files as bench_files
from stages.annotate.bench import tuples as bench_tuples
from stages.annotate.bench.tuples import ExpertGroup, Tuple
from stages.annotate.config import BenchConfig
from stages.annotate.consensus import consensus
from stages.annotate.packet.write import csv_table
from stages.annotate.quality.queues import adjudication_csv
from stages.annotate.ratings.accepted import accepted_ratings, rating_task_of
from stages.annotate.ratings.groups import complete_scores
from stages.annotate.ratings.rating_task import RatingTask
from stages.context import Context
from stages.engine import steps, storage
from stages.engine.rundir import Index, StepFolder

STEP = steps.BUILD_BENCH
LAYOUT = "EditReward-Bench"
TUPLES = ("id", "size", "task", "source_id", "candidates", "hardness", "expert_agreement", "tie")


def run(context: Context) -> Index:
    """Make the step; returns its index. Raises ``ValueError`` when no group has three experts, or none gives a tuple."""
    config, seed = context.flow.annotate.benchmark, context.flow.seed
    wanted = {2: config.pairs, 3: config.triples, 4: config.quadruples}
    if not any(wanted.values()):
        raise ValueError("annotate.benchmark asks for no tuples; give a number of pairs, triples or quadruples")
    generate = context.run.step(steps.GENERATE)
    ratings, decision = accepted_ratings(context.run)
    annotate = context.run.step(steps.ANNOTATE).require()
    if steps.GENERATE not in annotate.inputs:
        raise ValueError(f"the ratings in {context.run.step('annotate').path} are of imported items, whose images this run does not have")
    inputs = {steps.GENERATE: generate.require().fingerprint, steps.ANNOTATE: annotate.fingerprint} | decision
    settings = {"benchmark": config.model_dump(mode="json"), "seed": seed}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    task = rating_task_of(context)
    sources = {row["source_id"]: row for row in generate.read("sources", ["source_id", "split", "task"]).to_pylist()}
    wanted_groups = [group for group in task.sampled if config.split == "all" or sources[group]["split"] == config.split]
    used = consensus.of_experts(ratings, config.round)
    found = consensus.majority(used, task, groups=wanted_groups)
    if len(found.left_out) == len(wanted_groups):
        raise ValueError(
            f"no {config.split} group was rated whole by {consensus.LEAST_RATERS} experts in round {config.round}; let them rate, or set "
            "another annotate.benchmark.round or annotate.benchmark.split"
        )
    settled = _settled(found.labels, task.dimensions)
    left_out = Counter(row.reason for row in found.left_out)
    if unsettled := len(wanted_groups) - len(found.left_out) - len(settled):
        left_out["no-settled-candidate"] = unsettled
    copies = _copies(generate, {candidate: group for group, candidates in settled.items() for candidate in candidates})
    settled = {group: {name: of[name] for name in of if name not in copies} for group, of in settled.items()}
    groups = _groups(settled, used, task, {name: source["task"] for name, source in sources.items()})
    tuples = bench_tuples.choose(groups, wanted, tie_share=config.tie_share, seed=seed)
    if not tuples:
        raise ValueError(
            f"the experts order no two edits of a group clearly, and {len(found.disputed):,} cells have no majority; have a further expert "
            "decide these: `pipeline annotate consensus --method majority` writes the list"
        )
    figures = _figures(tuples, wanted, found, groups, left_out) | {"candidates_that_are_copies": len(copies)}
    bench = folder.path / LAYOUT
    files = {f"{LAYOUT}/{name}": sha for name, sha in bench_files.write(bench, tuples, generate, task.dimensions).items()}
    for stale in bench.rglob("*.parquet"):
        if f"{LAYOUT}/{stale.relative_to(bench).as_posix()}" not in files:
            stale.unlink()
    files[f"{LAYOUT}/README.md"] = storage.publish_bytes(bench / "README.md", _card(figures, config).encode())
    texts = {
        "tuples.csv": csv_table(_tuple_rows(tuples), TUPLES),
        "adjudicate.csv": adjudication_csv(found.disputed, task),
    }
    files |= {name: storage.publish_bytes(folder.path / name, text) for name, text in texts.items()}
    files["summary.json"] = storage.publish_json(folder.path / "summary.json", figures)
    return folder.publish(
        draft,
        files=files,
        counts={"in": len(wanted_groups), "out": len(tuples)},
        results={name: figures[name] for name in ("tuples", "missing", "cells_to_adjudicate")},
    )


def _copies(generate: StepFolder, group_of: Mapping[str, str]) -> set[str]:
    """Candidates with the same image as another candidate of their group with an earlier id."""
    first: dict[tuple[str, str], str] = {}
    for row in generate.rows("candidates", ["candidate_id", "image"]):
        if row["candidate_id"] in group_of:
            key = (group_of[row["candidate_id"]], hashlib.sha256(row["image"]["bytes"]).hexdigest())
            first[key] = min(first.get(key, row["candidate_id"]), row["candidate_id"])
    return set(group_of) - set(first.values())


def _settled(labels: Sequence[consensus.Label], dimensions: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """Labels [dimension] by group and candidate, for candidates that are labelled in every dimension."""
    cells: defaultdict[str, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for label in labels:
        cells[label.source_id][label.candidate_id][label.dimension] = label.score
    whole = {
        group: {name: np.array([score[d] for d in dimensions]) for name, score in sorted(of.items()) if len(score) == len(dimensions)}
        for group, of in sorted(cells.items())
    }
    return {group: candidates for group, candidates in whole.items() if candidates}


def _groups(
    settled: Mapping[str, Mapping[str, np.ndarray]], ratings: pa.Table, task: RatingTask, kinds: Mapping[str, str]
) -> list[ExpertGroup]:
    scores = complete_scores(ratings, task)
    groups = []
    for name, labels in settled.items():
        # Scores are [candidate, dimension] for the sampled candidates sorted by id; keep the rows of the labelled ones.
        row = {candidate: i for i, candidate in enumerate(sorted(task.sampled[name]))}
        experts = np.stack([scores[name][expert] for expert in sorted(scores[name])])[:, [row[candidate] for candidate in labels]]
        groups.append(ExpertGroup(name, kinds[name], tuple(labels), experts, np.stack(list(labels.values()))))
    return groups


def _tuple_rows(tuples: Sequence[Tuple]) -> list[dict[str, Any]]:
    rows = []
    number: Counter[int] = Counter()
    for found in tuples:
        number[found.size] += 1
        rows.append(
            {
                "id": f"{found.size}pair/{number[found.size]:04}",
                "size": found.size,
                "task": found.group.task,
                "source_id": found.group.source_id,
                "candidates": " ".join(found.group.candidates[place] for place in found.indices),
                "hardness": found.hardness,
                "expert_agreement": found.agreement,
                "tie": "yes" if found.tie else "no",
            }
        )
    return rows


def _figures(
    tuples: Sequence[Tuple],
    wanted: Mapping[int, int],
    found: consensus.Consensus,
    groups: Sequence[ExpertGroup],
    left_out: Mapping[str, int],
) -> dict[str, Any]:
    sizes = Counter(entry.size for entry in tuples)
    return {
        "tuples": {str(size): sizes[size] for size in wanted},
        "comparisons": sum(size * (size - 1) // 2 * count for size, count in sizes.items()),
        "missing": {str(size): count - sizes[size] for size, count in wanted.items() if sizes[size] < count},
        "ties": sum(entry.tie for entry in tuples),
        "by_task": {
            str(size): dict(sorted(Counter(entry.group.task for entry in tuples if entry.size == size).items())) for size in wanted
        },
        "mean_difference": {
            str(size): round(float(np.mean([entry.hardness for entry in tuples if entry.size == size])), 6) for size in sizes
        },
        "expert_agreement": round(float(np.mean([entry.agreement for entry in tuples])), 6),
        "groups_of_experts": len(groups),
        "groups_left_out": dict(sorted(left_out.items())),
        "labels": dict(sorted(Counter(label.label_source for label in found.labels).items())),
        "cells_to_adjudicate": len(found.disputed),
    }


def _card(figures: Mapping[str, Any], config: BenchConfig) -> str:
    """The README of the folder, with the Hub's metadata at the top."""
    counts = ", ".join(f"{count} of {size}" for size, count in figures["tuples"].items())
    return (
        "---\n"
        "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: '*pair/*.parquet'\n"
        "---\n\n"
        "# Comparisons of edits by experts\n\n"
        f"{figures['comparisons']} comparisons in {sum(figures['tuples'].values())} tuples ({counts}), in the layout of "
        "TIGER-Lab/EditReward-Bench: one row per comparison of two edits of a source.\n\n"
        f"Labels come from round {config.round}: the majority of at least three experts per candidate and dimension, else an adjudicator. "
        "An edit is better when the sum of its labels is higher and most experts order the two so. Tuples of 3 and 4 are strict orders. "
        f"Harder tuples were taken first, which lowers agreement: over the pairs, {figures['expert_agreement']:.1%} of the experts say "
        f"what the label says. {figures['ties']} of the pairs are ties.\n"
    )
