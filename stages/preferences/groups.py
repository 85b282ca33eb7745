"""Rated groups for the reward library, from the artifacts sources, candidates and pairs; labels and training targets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from stages.engine import steps
from stages.engine.ids import uniform
from stages.engine.rundir import RunDir

if TYPE_CHECKING:
    from reward.inputs.groups import RatedGroup

LABELS = {1.0: "a", 0.0: "b"}
"""Label of a strict target, the probability that a is better; every other target is a tie."""
SOFT = "tie-soft"
"""Origin of a row whose overall target is 0.5 instead of None."""


def label_of(target: float | None) -> str:
    """Label in the ``pairs`` artifact of a training target: ``a``, ``b`` or ``tie``."""
    return LABELS.get(target, "tie") if target is not None else "tie"


def target_of(label: str, origin: str = "plain") -> float | None:
    """Inverse of :func:`label_of`. origin: of the row, for its overall label; a tie is 0.5 where it is ``tie-soft``, else None."""
    return {"a": 1.0, "b": 0.0, "tie": 0.5 if origin == SOFT else None}[label]


def load_groups(run: RunDir, split: str) -> list[RatedGroup]:
    """Groups of a split in the order of the pairs artifact; images are the encoded bytes of the candidates artifact."""
    pairs = run.step(steps.PREFERENCES).read("pairs")
    pairs = pairs.filter(pc.field("split") == split)
    by_source: dict[str, list[dict[str, Any]]] = {}
    for row in pairs.to_pylist():
        by_source.setdefault(row["source_id"], []).append(row)
    folder = run.step(steps.GENERATE)
    sources = {row["source_id"]: row for row in folder.read("sources").filter(pc.field("source_id").isin(list(by_source))).to_pylist()}
    wanted = {row[side] for rows in by_source.values() for row in rows for side in ("candidate_a", "candidate_b")}
    candidates = folder.read("candidates", ["candidate_id", "image"]).filter(pc.field("candidate_id").isin(list(wanted)))
    images = {row["candidate_id"]: row["image"]["bytes"] for row in candidates.to_pylist()}
    return [rated_group(sources[source_id], rows, images) for source_id, rows in by_source.items()]


def with_truth(groups: Sequence[RatedGroup], run: RunDir) -> list[RatedGroup] | None:
    """The same groups labelled with the toy world's ground-truth quality, or None if candidates have none."""
    from reward import RatedGroup, build_preferences

    wanted = {candidate for group in groups for candidate in group.candidate_ids}
    table = run.step(steps.GENERATE).read("candidates", ["candidate_id", "metadata"])
    truth = {
        row["candidate_id"]: json.loads(row["metadata"]) for row in table.filter(pc.field("candidate_id").isin(list(wanted))).to_pylist()
    }
    dimensions = tuple(groups[0].scores[0]) if groups else ()
    if not all(dimension in levels for levels in truth.values() for dimension in dimensions):
        return None
    relabelled = []
    for group in groups:
        scores = tuple({name: float(truth[candidate][name]) for name in dimensions} for candidate in group.candidate_ids)
        chosen = tuple(build_preferences(scores, dimensions, ties="off"))
        relabelled.append(RatedGroup(**{**vars(group), "scores": scores, "preferences": chosen}))
    return relabelled


def rated_group(source: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes]) -> RatedGroup:
    """The group of a source from its rows of ``pairs`` and the encoded images of its candidates by id."""
    from reward import Preference, RatedGroup

    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        for side in ("a", "b"):
            scores[row[f"candidate_{side}"]] = {entry["dimension"]: entry[f"score_{side}"] for entry in row["dimensions"]}
    ids = tuple(scores)
    position = {candidate_id: i for i, candidate_id in enumerate(ids)}
    chosen = tuple(
        Preference(
            a=position[row["candidate_a"]],
            b=position[row["candidate_b"]],
            dimensions=tuple(target_of(entry["label"]) for entry in row["dimensions"]),
            overall=target_of(row["label"], row["origin"]),
            gaps=tuple(entry["score_a"] - entry["score_b"] for entry in row["dimensions"]),
            origin=row["origin"],
        )
        for row in rows
    )
    return RatedGroup(
        source_id=source["source_id"],
        source=source["image"]["bytes"],
        instruction=source["instruction"],
        candidate_ids=ids,
        candidates=tuple(images[candidate_id] for candidate_id in ids),
        scores=tuple(scores[candidate_id] for candidate_id in ids),
        preferences=chosen,
        task=source["task"],
    )


CALIBRATION_SHARE = 0.5


def calibrates(source_id: str) -> bool:
    """Whether a held-out group is in the half that fits the calibration; the other half tests it."""
    return uniform("calibration", source_id) < CALIBRATION_SHARE
