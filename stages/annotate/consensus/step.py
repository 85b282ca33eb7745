"""Step consensus: one score per candidate and dimension by a named method.

In: accepted ratings. Out: a step folder ``consensus-<method>`` with the table ``consensus``, ``consensus.csv``, and
for ``majority`` the cells without a majority (``adjudicate.csv``);
for ``ranking`` the pairs ordered by mean rank (``pairs.csv``), without those that mean opinion scores of the same ledger reverse, and the
groups to rank again because their rankings differ (``reannotate.csv``).
Groups or raters that cannot be used are quarantined with a reason. Unit of resume: the step; every call decides again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from stages.annotate.config import AnnotateConfig
from stages.annotate.consensus import consensus, rankings
from stages.annotate.consensus.consensus import Consensus, Label
from stages.annotate.consensus.mean_opinion import mean_opinion
from stages.annotate.packet.write import csv_table
from stages.annotate.quality.queues import QueuedGroup, adjudication_csv, reannotation_csv
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import accepted_ratings, rating_task_of
from stages.annotate.ratings.rating_task import RatingTask
from stages.context import Context
from stages.engine import contracts, steps, storage
from stages.engine.rundir import Index
from stages.engine.units import publish_unit

Method = Literal["mean", "majority", "mos", "ranking"]
STEP = "consensus-{method}"
NEEDED: dict[Method, str] = {
    "mean": "scores of a whole group by somebody",
    "majority": "scores of a whole group by three people in round {round} (annotate.benchmark.round)",
    "mos": "scores that differ by people who gave two or more",
    "ranking": "ranks of a whole group by somebody, in round ranking, of groups that are not to be ranked again",
}
COLUMNS = ("source_id", "candidate_id", "dimension", "score", "raters", "label_source")


def run(context: Context, method: Method) -> Index:
    """Make the step; returns its index. Raises ``ValueError`` when nothing can be labelled by the method."""
    config: AnnotateConfig = context.flow.annotate
    ratings, decision = accepted_ratings(context.run)
    annotate = context.run.step(steps.ANNOTATE).require()
    folder = context.run.step(STEP.format(method=method))
    settings = {"method": method, "reannotate": config.quality.reannotate.model_dump(mode="json"), "round": config.benchmark.round}
    inputs = {steps.ANNOTATE: annotate.fingerprint} | decision
    draft, done = folder.begin(settings=settings, inputs=inputs, force=True)
    if done:
        return done
    task = rating_task_of(context)
    found, texts, results = _labelled(method, ratings, task, config)
    if not found.labels:
        why = f", e.g. {found.left_out[0].position}: {found.left_out[0].message}" if found.left_out else ""
        needed = NEEDED[method].format(round=config.benchmark.round)
        raise ValueError(f"{context.run.step(steps.ANNOTATE).path} has no ratings that the method {method} needs: {needed}{why}")
    labels = [vars(label) for label in found.labels]
    texts["consensus.csv"] = csv_table(labels, COLUMNS)
    tables = {
        "consensus": contracts.table("consensus", labels),
        "quarantine": contracts.table("quarantine", [asdict(row) for row in found.left_out]),
    }
    parts = publish_unit(folder.path, draft.key, tables)
    return folder.publish(
        draft,
        artifacts={name: [part] for name, part in parts.items()},
        files={name: storage.publish_bytes(folder.path / name, text) for name, text in sorted(texts.items())},
        counts={"in": ratings.num_rows, "out": len(found.labels)},
        quarantined=dict(sorted(Counter(row.reason for row in found.left_out).items())),
        results=results | {"labels": dict(sorted(Counter(label.label_source for label in found.labels).items()))},
    )


def _labelled(
    method: Method, ratings: pa.Table, task: RatingTask, config: AnnotateConfig
) -> tuple[Consensus, dict[str, bytes], dict[str, Any]]:
    """Labels, further files by name, results."""
    scores = ledger.scores_only(ratings)
    if method == "mean":
        return consensus.mean(scores, task), {}, {}
    if method == "majority":
        found = consensus.majority(consensus.of_experts(scores, config.benchmark.round), task)
        return found, {"adjudicate.csv": adjudication_csv(found.disputed, task)}, {"cells_to_adjudicate": len(found.disputed)}
    if method == "mos":
        found, warnings = mean_opinion(scores)
        return found, {}, {"warnings": warnings}
    return _ranked(ratings, scores, task, config)


def _ranked(
    ratings: pa.Table, scores: pa.Table, task: RatingTask, config: AnnotateConfig
) -> tuple[Consensus, dict[str, bytes], dict[str, Any]]:
    rules = config.quality.reannotate
    again, settled = [], []
    for group, of_group in groupby(rankings.group_rankings(ratings, task), key=lambda ranking: ranking.group_id):
        parts = list(of_group)
        raters = parts[0].raters
        lowest = min((part.concordance if part.concordance is not None else 0.0) for part in parts)
        if len(raters) < rules.rankings or (lowest < rules.kendall_w and len(raters) < 2 * rules.rankings):
            reason = "too-few-rankings" if len(raters) < rules.rankings else "rankings-differ"
            message = f"{len(raters)} rankings, Kendall's W {lowest:.2f}; wanted {rules.rankings} and {rules.kendall_w:g}"
            again.append(QueuedGroup(group, reason, message, raters))
        else:
            settled += parts
    labels = [
        Label(part.group_id, candidate, part.dimension, float(rank), len(part.raters), "mean-rank")
        for part in settled
        for candidate, rank in zip(part.candidates, part.mean_ranks, strict=True)
    ]
    ordered, equal = rankings.pairs(settled)
    opinions = mean_opinion(scores)[0].labels if scores.num_rows else []
    kept, contradicted = rankings.without_contradictions(ordered, {(row.candidate_id, row.dimension): row.score for row in opinions})
    files = {
        "pairs.csv": csv_table(map(vars, kept), ("group_id", "dimension", "better", "worse", "gap")),
        "reannotate.csv": reannotation_csv(again),
    }
    figures = {"pairs": len(kept), "pairs_of_equal_rank": equal, "pairs_contradicted_by_scores": contradicted, "groups_again": len(again)}
    return Consensus(labels, [], []), files, figures
