"""Consensus: one score per candidate and dimension, by a method that is named.

In: accepted ratings. Out: a step folder ``consensus-<method>`` with the table ``consensus``, ``consensus.csv``, and
for ``majority`` the cells without one (``adjudicate.csv``);
for ``ranking`` the pairs in the order of the mean ranks (``pairs.csv``), without those that mean opinion scores of the same ledger turn
round, and the groups to be ranked again because the rankings differ (``reannotate.csv``).
What cannot be labelled is in the quarantine with its reason. Unit of resume: the step, decided anew at every call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Literal

import pyarrow as pa

from stages.annotate.config import AnnotateConfig
from stages.annotate.consensus import consensus, rankings
from stages.annotate.consensus.consensus import Consensus, Label
from stages.annotate.consensus.mean_opinion import mean_opinion
from stages.annotate.quality import adjudication
from stages.annotate.quality.reannotation import Again, listed
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import accepted_ratings, manifest_of
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.manifest import Manifest
from stages.context import Context
from stages.engine import contracts, storage
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
    annotate = context.run.step("annotate").require()
    folder = context.run.step(STEP.format(method=method))
    settings = {"method": method, "reannotate": config.quality.reannotate.model_dump(mode="json"), "round": config.benchmark.round}
    inputs = {"annotate": annotate.fingerprint} | decision
    draft, done = folder.begin(settings=settings, inputs=inputs, force=True)
    if done:
        return done
    work = manifest_of(context)
    found, texts, results = _labelled(method, ratings, work, config)
    if not found.labels:
        why = f", e.g. {found.left_out[0].position}: {found.left_out[0].message}" if found.left_out else ""
        needed = NEEDED[method].format(round=config.benchmark.round)
        raise ValueError(f"{context.run.step('annotate').path} has no ratings that the method {method} needs: {needed}{why}")
    texts["consensus.csv"] = csv_table(consensus.table(found.labels), COLUMNS)
    tables = {
        "consensus": contracts.table("consensus", consensus.table(found.labels)),
        "quarantine": contracts.table("quarantine", [asdict(row) for row in found.left_out]),
    }
    parts = publish_unit(folder.path, draft.key, tables)
    return folder.publish(
        draft,
        artifacts={name: [part] for name, part in parts.items()},
        files={name: storage.publish_bytes(folder.path / name, text) for name, text in sorted(texts.items())},
        counts={"in": ratings.num_rows, "out": len(found.labels)},
        quarantined=dict(sorted(Counter(row.reason for row in found.left_out).items())),
        results=results | {"labels": dict(sorted(Counter(label.source for label in found.labels).items()))},
    )


def _labelled(
    method: Method, ratings: pa.Table, work: Manifest, config: AnnotateConfig
) -> tuple[Consensus, dict[str, bytes], dict[str, Any]]:
    """Labels, further files, figures."""
    scores = ledger.scores_only(ratings)
    if method == "mean":
        return consensus.mean(scores, work), {}, {}
    if method == "majority":
        found = consensus.majority(consensus.of_experts(scores, config.benchmark.round), work)
        return found, {"adjudicate.csv": adjudication.queue(found.disputed, work)}, {"cells_to_adjudicate": len(found.disputed)}
    if method == "mos":
        found, warnings = mean_opinion(scores)
        return found, {}, {"warnings": warnings}
    return _ranked(ratings, scores, work, config)


def _ranked(
    ratings: pa.Table, scores: pa.Table, work: Manifest, config: AnnotateConfig
) -> tuple[Consensus, dict[str, bytes], dict[str, Any]]:
    rules = config.quality.reannotate
    everything = rankings.group_rankings(ratings, work)
    again, settled = [], []
    for group, parts in rankings.by_group(everything).items():
        raters = parts[0].raters
        lowest = min((part.concordance if part.concordance is not None else 0.0) for part in parts)
        if len(raters) < rules.rankings or (lowest < rules.kendall_w and len(raters) < 2 * rules.rankings):
            reason = "too-few-rankings" if len(raters) < rules.rankings else "rankings-differ"
            message = f"{len(raters)} rankings, Kendall's W {lowest:.2f}; wanted {rules.rankings} and {rules.kendall_w:g}"
            again.append(Again(group, reason, message, raters))
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
        "reannotate.csv": listed(again),
    }
    figures = {"pairs": len(kept), "pairs_of_equal_rank": equal, "pairs_contradicted_by_scores": contradicted, "groups_again": len(again)}
    return Consensus(labels, [], []), files, figures
