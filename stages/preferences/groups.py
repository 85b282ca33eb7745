"""Rated groups for the reward library, from the artifacts sources, candidates and pairs; labels and training targets.

Groups have ids, numbers and references to images, so their memory does not grow with the images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from reward.inputs.groups import Preference, RatedGroup, build_preferences
from stages.engine import steps
from stages.engine.ids import uniform
from stages.engine.rundir import RunDir
from stages.engine.stored_images import references

if TYPE_CHECKING:
    from reward.inputs.sample import EncodedImage

LABELS = {1.0: "a", 0.0: "b"}
"""Label of a strict target, the probability that a is better; every other target is a tie."""
COLUMNS = ("source_id", "split", "candidate_a", "candidate_b", "dimensions", "label", "origin")
"""Columns of ``pairs`` that training and evaluation read."""
SOFT = "tie-soft"
"""Origin of a row whose overall target is 0.5 instead of None."""


def label_of(target: float | None) -> str:
    """Label in the ``pairs`` artifact of a training target: ``a``, ``b`` or ``tie``."""
    return LABELS.get(target, "tie") if target is not None else "tie"


def target_of(label: str, origin: str = "plain") -> float | None:
    """Inverse of :func:`label_of`. origin: of the row, for its overall label; a tie is 0.5 where it is ``tie-soft``, else None."""
    return {"a": 1.0, "b": 0.0, "tie": 0.5 if origin == SOFT else None}[label]


def load_groups(run: RunDir, split: str) -> list[RatedGroup]:
    """Groups of a split in the order of the pairs artifact; images are references into the artifacts sources and candidates."""
    rated: dict[str, RatedRows] = {}
    for row in run.step(steps.PREFERENCES).rows("pairs", COLUMNS, batch_size=1024):
        if row["split"] == split:
            rated.setdefault(row["source_id"], RatedRows()).add(row)
    if not rated:
        return []
    folder = run.step(steps.GENERATE)
    table = folder.read("sources", ["source_id", "instruction", "task"])
    sources = {row["source_id"]: row for row in table.filter(pc.field("source_id").isin(list(rated))).to_pylist()}
    originals = references(folder, "sources", "source_id", rated.keys())
    edits = references(folder, "candidates", "candidate_id", {candidate for found in rated.values() for candidate in found.scores})
    return [found.group(sources[source_id], originals[source_id], edits) for source_id, found in rated.items()]


def with_truth(groups: Sequence[RatedGroup], run: RunDir) -> list[RatedGroup] | None:
    """The same groups labelled with the toy world's ground-truth quality, or None if candidates have none."""
    wanted = {candidate for group in groups for candidate in group.candidate_ids}
    table = run.step(steps.GENERATE).read("candidates", ["candidate_id", "metadata"])
    truth = {
        row["candidate_id"]: json.loads(row["metadata"]) for row in table.filter(pc.field("candidate_id").isin(list(wanted))).to_pylist()
    }
    dimensions = tuple(groups[0].scores[0]) if groups else ()
    if not all(dimension in levels for levels in truth.values() for dimension in dimensions):
        return None
    return labelled(groups, truth)


def labelled(groups: Sequence[RatedGroup], truth: Mapping[str, Mapping[str, Any]]) -> list[RatedGroup]:
    """The same groups with other scores, and the preferences that follow from them; truth: by candidate and dimension."""
    relabelled = []
    for group in groups:
        scores = tuple(
            {name: float(truth[candidate][name]) for name in own} for candidate, own in zip(group.candidate_ids, group.scores, strict=True)
        )
        chosen = tuple(build_preferences(scores, tuple(group.scores[0]), ties="off"))
        relabelled.append(replace(group, scores=scores, preferences=chosen))
    return relabelled


class RatedRows:
    """What the rows of ``pairs`` say of one source: the candidates' scores in the order in which they occur, and preferences."""

    def __init__(self) -> None:
        self.scores: dict[str, dict[str, float]] = {}
        self.preferences: list[Preference] = []
        self._position: dict[str, int] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in a row."""
        for side in ("a", "b"):
            candidate = row[f"candidate_{side}"]
            self._position.setdefault(candidate, len(self._position))
            self.scores[candidate] = {entry["dimension"]: entry[f"score_{side}"] for entry in row["dimensions"]}
        self.preferences.append(
            Preference(
                a=self._position[row["candidate_a"]],
                b=self._position[row["candidate_b"]],
                dimensions=tuple(target_of(entry["label"]) for entry in row["dimensions"]),
                overall=target_of(row["label"], row["origin"]),
                gaps=tuple(entry["score_a"] - entry["score_b"] for entry in row["dimensions"]),
                origin=row["origin"],
            )
        )

    def group(self, source: Mapping[str, Any], image: EncodedImage, edits: Mapping[str, EncodedImage]) -> RatedGroup:
        """The group of a source; edits: images of candidates by id."""
        return RatedGroup(
            source_id=source["source_id"],
            source=image,
            instruction=source["instruction"],
            candidate_ids=tuple(self.scores),
            candidates=tuple(edits[candidate_id] for candidate_id in self.scores),
            scores=tuple(self.scores.values()),
            preferences=tuple(self.preferences),
            task=source["task"],
        )


CALIBRATION_SHARE = 0.5


def calibrates(source_id: str) -> bool:
    """Whether a held-out group is in the half that fits the calibration; the other half tests it."""
    return uniform("calibration", source_id) < CALIBRATION_SHARE
