"""Build a benchmark of experts: an EditReward-Bench of 2-, 3- and 4-way comparisons from ratings of three experts or more (paper 2.3, A.3).

In: accepted ratings of one round, the generate step. Out: a step folder ``build-bench`` with the benchmark in the layout of the published
one (``EditReward-Bench/``), ``tuples.csv`` (what each tuple is, how hard, how far the experts agree on it), ``adjudicate.csv`` (cells
without a majority, to be filled in by a further expert and ingested) and ``summary.json``. Unit of resume: the step.

Only held-out sources become items unless the configuration says otherwise, so that the benchmark shares no source image with training.
Of candidates of a group that are the same image, the one with the first id can be compared, or one comparison would stand there twice,
perhaps with contradicting labels.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.annotate.bench import files as bench_files
from stages.annotate.bench import tuples as bench_tuples
from stages.annotate.bench.tuples import ExpertGroup, Tuple
from stages.annotate.config import BenchConfig
from stages.annotate.consensus import consensus
from stages.annotate.quality import adjudication
from stages.annotate.ratings.accepted import accepted_ratings, manifest_of
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.groups import rated_whole
from stages.annotate.ratings.manifest import Manifest
from stages.context import Context
from stages.engine import storage
from stages.engine.rundir import Index, StepFolder

STEP = "build-bench"
LAYOUT = "EditReward-Bench"
TUPLES = ("id", "size", "task", "source_id", "candidates", "hardness", "expert_agreement", "tie")


def run(context: Context) -> Index:
    """Make the step; returns its index. Raises ``ValueError`` when no group has three experts, or none gives a tuple."""
    config, seed = context.flow.annotate.benchmark, context.flow.seed
    wanted = {2: config.pairs, 3: config.triples, 4: config.quadruples}
    if not any(wanted.values()):
        raise ValueError("annotate.benchmark wants no tuples; give a number of pairs, triples or quadruples")
    generate = context.run.step("generate")
    ratings, decision = accepted_ratings(context.run)
    annotate = context.run.step("annotate").require()
    if "generate" not in annotate.inputs:
        raise ValueError(
            f"the ratings in {context.run.step('annotate').path} are of images that this run does not have; nothing can be shown"
        )
    inputs = {"generate": generate.require().fingerprint, "annotate": annotate.fingerprint} | decision
    settings = {"benchmark": config.model_dump(mode="json"), "seed": seed}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    work = manifest_of(context)
    sources = {row["source_id"]: row for row in generate.read("sources", ["source_id", "split", "task"]).to_pylist()}
    judged = [group for group in work.sampled if config.split == "all" or sources[group]["split"] == config.split]
    used = consensus.of_experts(ratings, config.round)
    found = consensus.majority(used, work, judged=judged)
    if len(found.left_out) == len(judged):
        raise ValueError(
            f"no {config.split} group was rated whole by {consensus.LEAST_RATERS} experts in round {config.round}; have them rate, or name "
            "another annotate.benchmark.round or annotate.benchmark.split"
        )
    settled = _settled(found.labels, work.dimensions)
    left_out = Counter(row.reason for row in found.left_out)
    if unsettled := len(judged) - len(found.left_out) - len(settled):
        left_out["no-settled-candidate"] = unsettled
    copies = _copies(generate, {candidate: group for group, candidates in settled.items() for candidate in candidates})
    settled = {group: {name: of[name] for name in of if name not in copies} for group, of in settled.items()}
    groups = _groups(settled, used, work, {name: source["task"] for name, source in sources.items()})
    tuples = bench_tuples.choose(groups, wanted, tie_share=config.tie_share, seed=seed)
    if not tuples:
        raise ValueError(
            f"the experts order no two edits of a group clearly, and {len(found.disputed):,} cells have no majority; have a further expert "
            "settle these: `pipeline annotate consensus --method majority` writes the list"
        )
    figures = _figures(tuples, wanted, found, groups, left_out) | {"candidates_that_are_copies": len(copies)}
    bench = folder.path / LAYOUT
    files = {f"{LAYOUT}/{name}": sha for name, sha in bench_files.write(bench, tuples, generate, work.dimensions).items()}
    for stale in bench.rglob("*.parquet"):
        if f"{LAYOUT}/{stale.relative_to(bench).as_posix()}" not in files:
            stale.unlink()
    files[f"{LAYOUT}/README.md"] = storage.publish_bytes(bench / "README.md", _card(figures, config).encode())
    texts = {
        "tuples.csv": csv_table(_tuple_rows(tuples), TUPLES),
        "adjudicate.csv": adjudication.queue(found.disputed, work),
    }
    files |= {name: storage.publish_bytes(folder.path / name, text) for name, text in texts.items()}
    files["summary.json"] = storage.publish_json(folder.path / "summary.json", figures)
    return folder.publish(
        draft,
        files=files,
        counts={"in": len(judged), "out": len(tuples)},
        results={name: figures[name] for name in ("tuples", "missing", "cells_to_adjudicate")},
    )


def _copies(generate: StepFolder, group_of: Mapping[str, str]) -> set[str]:
    """Candidates whose image another candidate of their group with an earlier id has as well."""
    first: dict[tuple[str, str], str] = {}
    for part in generate.require().artifacts.get("candidates", []):
        for batch in pq.ParquetFile(generate.path / part.path).iter_batches(batch_size=16, columns=["candidate_id", "image"]):
            for row in batch.to_pylist():
                if row["candidate_id"] in group_of:
                    key = (group_of[row["candidate_id"]], hashlib.sha256(row["image"]["bytes"]).hexdigest())
                    first[key] = min(first.get(key, row["candidate_id"]), row["candidate_id"])
    return set(group_of) - set(first.values())


def _settled(labels: Sequence[consensus.Label], dimensions: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """By group and candidate the labels [dimension] of the candidates that are labelled in every dimension."""
    cells: defaultdict[str, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for label in labels:
        cells[label.group_id][label.candidate_id][label.dimension] = label.score
    whole = {
        group: {name: np.array([score[d] for d in dimensions]) for name, score in sorted(of.items()) if len(score) == len(dimensions)}
        for group, of in sorted(cells.items())
    }
    return {group: candidates for group, candidates in whole.items() if candidates}


def _groups(
    settled: Mapping[str, Mapping[str, np.ndarray]], ratings: pa.Table, work: Manifest, tasks: Mapping[str, str]
) -> list[ExpertGroup]:
    said = rated_whole(ratings, work)
    groups = []
    for name, labels in settled.items():
        place = {candidate: i for i, candidate in enumerate(sorted(work.sampled[name]))}
        experts = np.stack([said[name][expert] for expert in sorted(said[name])])[:, [place[candidate] for candidate in labels]]
        groups.append(ExpertGroup(name, tasks[name], tuple(labels), experts, np.stack(list(labels.values()))))
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
                "candidates": " ".join(found.group.candidates[place] for place in found.places),
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
        "labels": dict(sorted(Counter(label.source for label in found.labels).items())),
        "cells_to_adjudicate": len(found.disputed),
    }


def _card(figures: Mapping[str, Any], config: BenchConfig) -> str:
    """The README of the folder; the Hub reads its head."""
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
