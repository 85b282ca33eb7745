"""Step annotation-qc: rating quality control.

In: the ledger, ``annotate.quality``, and the gold of ``annotate.plan.gold``. Out: a step folder ``annotation-qc`` with the accepted
ratings, the exclusions with their reasons, ``quality.json`` (agreement by round, targets, annotator profiles and statuses),
``annotators.csv``, ``reannotate.csv`` (which export reads) and ``adjudicate.csv`` (which is filled in and ingested). The ledger does not
change. Unit of resume: the step; every call decides again from the current ledger.

After this step, preferences uses the accepted ratings and refuses a decision that is older than the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.packet import plan
from stages.annotate.packet.write import csv_table
from stages.annotate.quality import figures as quality
from stages.annotate.quality.judgement import annotators, is_accepted, judge
from stages.annotate.quality.queues import adjudication_csv, queues, reannotation_csv
from stages.annotate.quality.screening import Screening
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import rating_task_of
from stages.annotate.ratings.groups import raters_of
from stages.context import Context
from stages.engine import contracts, steps, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index
from stages.engine.units import publish_unit

STEP = steps.ANNOTATION_QC
NUMBERS = ("value", "low", "high")
ANNOTATOR_COLUMNS = (
    *("annotator", "status", "dimension", "ratings", "groups", "compared_groups", "mean", "spread", "spread_ratio", "equal_groups"),
    *(f"{name}{end}" for name in ("severity", "kappa", "within_one") for end in ("", "_low", "_high")),
    *("drift", "seconds", "pace"),
    *(f"{name}_{part}" for name in ("gold", "exam") for part in ("groups", "cells", "exact", "within_one", "severity", "kappa")),
    "reasons",
)
"""Columns of ``annotators.csv``; a cell without a value is empty."""


def run(context: Context) -> Index:
    """Run quality control; returns the index, whose ``results["met"]`` says whether the targets are met.

    Raises ``ValueError`` when nothing was ingested, and for a rule that cannot work on these ratings.
    """
    annotate = context.run.step(steps.ANNOTATE)
    config, seed = context.flow.annotate.quality, context.flow.seed
    ledger.verified(annotate)
    task = rating_task_of(context)
    gold = plan.flat(plan.read_gold(context.flow.annotate, task))
    settings: dict[str, Any] = {"quality": config.model_dump(mode="json"), "seed": seed}
    settings |= {"gold": settings_hash(sorted(gold.items()))} if gold else {}
    inputs = {steps.ANNOTATE: annotate.require().fingerprint}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=True)
    if done:
        return done
    levels = task.scale.levels
    ratings = ledger.current(annotate)
    scores = ledger.scores_only(ratings)
    judged = judge(scores, levels, config, seed=seed, gold=gold)
    found = judged.screening
    accepted, exclusions = _split(ratings, found)
    accepted_scores = ledger.scores_only(accepted)
    rated = raters_of(scores)
    groups, disputed = queues(accepted_scores, rated, task, config.reannotate)
    reasons = Counter(row["reason"] for row in exclusions)
    figures = {
        "dimensions": list(task.dimensions),
        "scale": levels,
        "met": judged.met,
        "targets": judged.targets,
        "rounds": judged.rounds,
        "rounds_of_all_ratings": judged.rounds_of_all,
        "agreement_of_all_ratings": annotate.require().results["agreement"],
        "overlap": quality.overlap(raters_of(accepted_scores)),
        "ratings": {"in": ratings.num_rows, "accepted": accepted.num_rows, "excluded": dict(sorted(reasons.items()))},
        "annotators": annotators(found),
        "gold": {"cells": len(found.gold_cells), "experts": list(config.experts)},
        "again": {"groups": dict(sorted(Counter(row.reason for row in groups).items())), "cells": len(disputed), "rated": len(rated)},
        "again_exceeds": len(groups) > config.reannotate.most * len(rated),
        "most_again": config.reannotate.most,
    }
    texts = {
        "annotators.csv": csv_table((_flat(row) for row in figures["annotators"]), ANNOTATOR_COLUMNS),
        "reannotate.csv": reannotation_csv(groups),
        "adjudicate.csv": adjudication_csv(disputed, task),
    }
    files = {name: storage.publish_bytes(folder.path / name, text) for name, text in texts.items()}
    files["quality.json"] = storage.publish_json(folder.path / "quality.json", figures)
    parts = publish_unit(folder.path, draft.key, {"ratings": accepted, "exclusions": contracts.table("exclusions", exclusions)})
    return folder.publish(
        draft,
        artifacts={name: [part] for name, part in parts.items()},
        files=files,
        counts={"in": ratings.num_rows, "out": accepted.num_rows, "excluded": len(exclusions)},
        results={
            "met": figures["met"],
            "annotators": len(found.statuses),
            "removed": found.removed,
            "groups_again": len(groups),
            "cells_to_adjudicate": len(disputed),
        },
    )


def _split(ratings: pa.Table, found: Screening) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Accepted ratings, and rows of the exclusions: ratings of removed annotators and of exams."""
    kept = is_accepted(ratings, found)
    columns = ("rating_id", "source_id", "annotator", "dimension", "round")
    rows = ratings.filter(pc.invert(kept)).select(columns).to_pylist()
    for row in rows:
        of_removed = row["annotator"] in found.removed
        row["reason"] = "annotator-removed" if of_removed else "exam"
        row["message"] = "; ".join(found.statuses[row["annotator"]].reasons) if of_removed else "ratings of round exam are no training data"
    return ratings.filter(kept), rows


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Nested entries as columns: ``kappa``, ``kappa_low``, ``kappa_high``, ``gold_exact``; reasons joined."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and "value" in value:
            flat |= {name if part == "value" else f"{name}_{part}": value[part] for part in NUMBERS}
        elif isinstance(value, dict):
            flat |= {f"{name}_{part}": inner for part, inner in value.items()}
        elif isinstance(value, list):
            flat[name] = "; ".join(value)
        elif value is not None:
            flat[name] = value
    return flat
