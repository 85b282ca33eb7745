"""Rated groups from artifacts: sources, candidates and pairs joined into what the reward library trains on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from stages.engine import steps
from stages.engine.ids import uniform
from stages.engine.rundir import RunDir

if TYPE_CHECKING:
    from reward import RatedGroup

if TYPE_CHECKING:
    from reward.inputs.groups import RatedGroup

TARGETS = {"a": 1.0, "b": 0.0, "tie": None}
"""Target of a label; the overall label of a row that is ``tie-soft`` is 0.5."""


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
    return [_group(sources[source_id], rows, images) for source_id, rows in by_source.items()]


def with_truth(groups: Sequence[RatedGroup], run: RunDir) -> list[RatedGroup] | None:
    """The same groups labelled with the levels that the embedded world drew, or None where candidates have none."""
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


def _group(source: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes]) -> RatedGroup:
    from reward import Preference, RatedGroup

    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        for side in ("a", "b"):
            scores[row[f"candidate_{side}"]] = {entry["dimension"]: entry[f"score_{side}"] for entry in row["dimensions"]}
    ids = tuple(scores)
    place = {candidate_id: position for position, candidate_id in enumerate(ids)}
    chosen = tuple(
        Preference(
            a=place[row["candidate_a"]],
            b=place[row["candidate_b"]],
            dimensions=tuple(TARGETS[entry["label"]] for entry in row["dimensions"]),
            overall=0.5 if row["origin"] == "tie-soft" else TARGETS[row["label"]],
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
    """Whether a held-out group belongs to the half that the calibration is fitted on; the other half tests it."""
    return uniform("calibration", source_id) < CALIBRATION_SHARE
