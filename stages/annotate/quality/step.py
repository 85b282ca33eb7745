"""Quality control of ratings: which are accepted, who needs attention, what is rated again, and whether the targets are met.

In: the ledger, ``annotate.quality``, and the gold of ``annotate.plan.gold``. Out: a step folder ``annotation-qc`` with the accepted
ratings, the exclusions with their reasons, ``quality.json`` (agreement by round, targets, profiles, verdicts), ``annotators.csv``,
``reannotate.csv`` (which export takes) and ``adjudicate.csv`` (which is filled in and ingested). Nothing is taken from the ledger. Unit of
resume: the step, which is cheap: every call decides anew from the ledger as it is.

From then on preferences reads the accepted ratings, and refuses a decision that is older than the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.packet import plan
from stages.annotate.quality import adjudication
from stages.annotate.quality import figures as quality
from stages.annotate.quality.reannotation import again, listed
from stages.annotate.quality.screening import Screening, screen
from stages.annotate.ratings import ledger
from stages.annotate.ratings.accepted import manifest_of
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.rounds import EXAM
from stages.annotate.ratings.slots import raters_of
from stages.context import Context
from stages.engine import contracts, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, StepFolder
from stages.engine.units import publish_unit

STEP = "annotation-qc"
NUMBERS = ("value", "low", "high")
ANNOTATOR_COLUMNS = (
    *("annotator", "status", "dimension", "ratings", "groups", "compared_groups", "mean", "spread", "spread_ratio", "equal_groups"),
    *(f"{name}{end}" for name in ("severity", "kappa", "within_one") for end in ("", "_low", "_high")),
    *("drift", "seconds", "pace"),
    *(f"{name}_{part}" for name in ("gold", "exam") for part in ("groups", "cells", "exact", "within_one", "severity", "kappa")),
    "reasons",
)
"""Columns of ``annotators.csv``; a cell is empty where there is no figure."""


def run(context: Context) -> Index:
    """Decide; returns the index, whose ``results`` say whether the targets are met.

    Raises ``ValueError`` when nothing was ingested, and for a rule that cannot work on these ratings.
    """
    annotate = context.run.step(ledger.STEP)
    config, seed = context.flow.annotate.quality, context.flow.seed
    annotate.require()
    work = manifest_of(context)
    gold = plan.flat(plan.read_gold(context.flow.annotate, work))
    settings: dict[str, Any] = {"quality": config.model_dump(mode="json"), "seed": seed}
    settings |= {"gold": settings_hash(sorted(gold.items()))} if gold else {}
    inputs = {ledger.STEP: annotate.require().fingerprint}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=True)
    if done:
        return done
    levels = work.scale.levels
    ratings = ledger.current(annotate)
    scores = ledger.scores_only(ratings)
    found = screen(scores, levels, config, seed=seed, gold=gold)
    accepted, exclusions = _divided(ratings, found)
    still_scores = ledger.scores_only(accepted)
    rounds = quality.by_round(still_scores, levels, seed=seed)
    targets = quality.judged(rounds, config.targets)
    rated, still = raters_of(scores), raters_of(still_scores)
    groups, disputed = again(still_scores, rated, work, config.reannotate)
    removed_reasons = Counter(row["reason"] for row in exclusions)
    figures = {
        "dimensions": list(work.dimensions),
        "scale": levels,
        "met": quality.met(targets),
        "targets": targets,
        "rounds": rounds,
        "agreement_of_all_ratings": quality_before(annotate),
        "overlap": quality.overlap(still),
        "ratings": {"in": ratings.num_rows, "accepted": accepted.num_rows, "excluded": dict(sorted(removed_reasons.items()))},
        "annotators": _annotators(found),
        "gold": {"cells": len(found.gold_cells), "experts": list(config.experts)},
        "again": {"groups": dict(sorted(Counter(row.reason for row in groups).items())), "cells": len(disputed), "rated": len(rated)},
        "again_exceeds": len(groups) > config.reannotate.most * len(rated),
        "most_again": config.reannotate.most,
    }
    texts = {
        "annotators.csv": csv_table((_flat(row) for row in figures["annotators"]), ANNOTATOR_COLUMNS),
        "reannotate.csv": listed(groups),
        "adjudicate.csv": adjudication.queue(disputed, work),
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
            "annotators": len(found.verdicts),
            "removed": found.removed,
            "groups_again": len(groups),
            "cells_to_adjudicate": len(disputed),
        },
    )


def quality_before(annotate: StepFolder) -> dict[str, Any]:
    """Agreement of all ratings of the ledger, as ingest found it."""
    return annotate.require().results["agreement"]


def _divided(ratings: pa.Table, found: Screening) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Accepted ratings, and the others with their reason: the annotator was removed, or they were given in an exam."""
    removed = pc.is_in(ratings["annotator"], pa.array(found.removed, pa.string()))
    in_exam = pc.equal(ratings["round"], EXAM)
    out = pc.or_(removed, in_exam)
    columns = ("rating_id", "source_id", "annotator", "dimension", "round")
    rows = ratings.filter(out).select(columns).to_pylist()
    for row in rows:
        gone = row["annotator"] in found.removed
        row["reason"] = "annotator-removed" if gone else "exam"
        row["message"] = "; ".join(found.verdicts[row["annotator"]].reasons) if gone else "ratings of round exam are no training data"
    return ratings.filter(pc.invert(out)), rows


def _annotators(found: Screening) -> list[dict[str, Any]]:
    """One entry per annotator and dimension, with the verdict; who is in no profile (an exam only) has one without figures."""
    order = {"removed": 0, "attention": 1, "too few groups": 2, "good": 3, "expert": 4}
    rows = []
    for name in sorted(found.verdicts, key=lambda name: (order[found.verdicts[name].status], name)):
        verdict = found.verdicts[name]
        entries: list[dict[str, Any]] = [profile.to_json() for profile in found.profiles[name]] or [{"annotator": name, "dimension": ""}]
        for entry in entries:
            key = (name, entry["dimension"])
            on_gold, exam = found.gold.get(key), found.exam.get(key)
            rows.append(
                {"annotator": name, "status": verdict.status}
                | entry
                | {"gold": vars(on_gold) if on_gold else None, "exam": vars(exam) if exam else None, "reasons": list(verdict.reasons)}
            )
    return rows


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
