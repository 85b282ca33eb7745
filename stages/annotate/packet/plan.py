"""The plan of the rating work: which groups several people rate, which calibrate, and which are gold.

In: the manifest, the settings in ``annotate.plan``, and a file of experts' ratings where gold is wanted. Out: a :class:`Plan`, written as
``annotate/plan.json`` beside the packet. It names the gold groups and their scores, so it stays with the lead; the packet has none of it.

Everything is drawn from hashes of the group ids before anybody has rated, so a larger export never changes the role of a group. What makes
a cell gold says :mod:`stages.annotate.ratings.gold`; a cell that is none is not counted for or against anyone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stages.annotate.config import AnnotateConfig, PlanConfig
from stages.annotate.ratings.gold import Gold, gold_cells, nearest_level
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import ADJUDICATION, RANKING
from stages.engine import contracts, storage
from stages.engine.ids import uniform

FORMS = 2
"""Exam forms: who fails the first may try the second."""


@dataclass(frozen=True)
class GoldCell:
    """scores: what the experts gave, one each, lowest first; reasons: their words."""

    scores: tuple[float, ...]
    reasons: tuple[str, ...] = ()

    @property
    def accepted(self) -> list[float]:
        """The scores that count as right."""
        return sorted(set(self.scores))


GoldCells = Mapping[str, Mapping[str, GoldCell]]
"""Gold cells of a group by candidate and dimension."""


@dataclass(frozen=True)
class Plan:
    """wanted: how many people rate each group of the normal work, in the order it is handed out in. rated: of groups that are rated again,
    who had rated them when the plan was drawn; their ``wanted`` counts further people. The rest are lists of groups."""

    project: str
    seed: int
    wanted: Mapping[str, int]
    rated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calibration: Sequence[str] = ()
    training: Sequence[str] = ()
    exams: Sequence[Sequence[str]] = ()
    hidden: Sequence[str] = ()
    hidden_share: float = 0.0
    gold: Mapping[str, GoldCells] = field(default_factory=dict)

    @property
    def groups(self) -> list[str]:
        """All groups, whatever their role."""
        return [*self.wanted, *self.calibration, *self.training, *(group for form in self.exams for group in form), *self.hidden]

    def gold_of(self, groups: Iterable[str]) -> Gold:
        """Gold of some of the gold groups."""
        return flat({group: self.gold[group] for group in groups})


def draw(
    manifest: Manifest,
    groups: Sequence[str],
    config: PlanConfig,
    gold: Mapping[str, GoldCells],
    *,
    seed: int,
    rated: Mapping[str, Collection[str]] | None = None,
) -> Plan:
    """Give every group its role. ``groups`` are those of the packet in their order; the groups of ``gold`` are among them. ``rated``: who
    has rated the groups that are to be rated again; each of them wants one further person.

    Raises ``ValueError`` where the gold groups do not suffice for the training and the exams.
    """
    golden = sorted(gold, key=lambda group: (uniform("gold", seed, group), group))
    needed = config.training_groups + FORMS * config.exam_groups
    if gold and len(golden) < needed:
        raise ValueError(
            f"annotate.plan.gold: {config.gold} has {len(golden)} gold groups, but training_groups and {FORMS} forms of exam_groups ask "
            f"for {needed}; add ratings of experts or lower these numbers"
        )
    ends = [config.training_groups + form * config.exam_groups for form in range(FORMS + 1)]
    exams = [golden[begin:end] for begin, end in pairwise(ends)] if gold else []
    for number, form in enumerate(exams, 1):
        _require_variation(number, form, gold, manifest, config)
    rated = {group: tuple(sorted(rated[group])) for group in groups if group not in gold and group in rated} if rated else {}
    first = [group for group in groups if group not in gold and group not in rated]
    calibration, fresh = first[: config.calibration], set(first[config.calibration :])
    people = {group: config.overlap_raters if uniform("overlap", seed, group) < config.overlap else 1 for group in fresh}
    return Plan(
        project=manifest.project,
        seed=seed,
        wanted={group: people.get(group, 1) for group in groups if group in fresh or group in rated},
        rated=rated,
        calibration=calibration,
        training=golden[: config.training_groups],
        exams=exams,
        hidden=golden[needed:],
        hidden_share=config.hidden_gold if len(golden) > needed else 0.0,
        gold={group: gold[group] for group in golden},
    )


def read_gold(config: AnnotateConfig, manifest: Manifest) -> dict[str, GoldCells]:
    """Gold cells of every group that experts rated, from the file in the settings; empty without one. Raises ``ValueError`` for a file
    with a rating that ingest would not accept."""
    path, least = config.plan.gold, config.quality.gold_raters
    if path is None:
        return {}
    from stages.annotate.formats import read as readers
    from stages.annotate.ratings.validate import validate

    delivery = readers.read(path)
    checked = validate(delivery, manifest, {}, batch="gold", now=datetime.now(UTC))
    if checked.quarantine:
        first = checked.quarantine[0]
        raise ValueError(f"annotate.plan.gold: {first.position}: {first.message}")
    table = contracts.table("ratings", checked.accepted)
    reasons: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in checked.accepted:
        if row["comment"] and row["round"] not in (ADJUDICATION, RANKING):
            reasons[row["candidate_id"], row["dimension"]].add(row["comment"])
    gold: defaultdict[str, defaultdict[str, dict[str, GoldCell]]] = defaultdict(lambda: defaultdict(dict))
    cells = gold_cells(table, set(table["annotator"].to_pylist()), least, manifest.scale.levels)
    for (candidate, dimension), scores in sorted(cells.items(), key=lambda cell: (manifest.group_of[cell[0][0]], *cell[0])):
        gold[manifest.group_of[candidate]][candidate][dimension] = GoldCell(scores, tuple(sorted(reasons[candidate, dimension])))
    if not gold:
        raise ValueError(f"annotate.plan.gold: no cell of {path} was rated alike by {least} experts; see annotate.quality.gold_raters")
    return {group: {candidate: dict(cells) for candidate, cells in candidates.items()} for group, candidates in gold.items()}


def flat(gold: Mapping[str, GoldCells]) -> Gold:
    """The same cells by candidate and dimension."""
    return {(candidate, d): cell.scores for cells in gold.values() for candidate, of in cells.items() for d, cell in of.items()}


def write(path: Path, plan: Plan) -> None:
    """Publish ``plan.json``, readable by its owner alone: it holds the gold scores."""
    storage.publish_json(path, asdict(plan) | {"wanted": list(plan.wanted.items())})
    path.chmod(0o600)


def read(path: Path) -> Plan:
    """Inverse of :func:`write`. Raises ``ValueError`` for a plan of another version."""
    value = storage.read_json(path)
    try:
        gold = {
            group: {candidate: {d: _read_cell(cell) for d, cell in cells.items()} for candidate, cells in candidates.items()}
            for group, candidates in value["gold"].items()
        }
        return Plan(**value | {"wanted": dict(value["wanted"]), "gold": gold})
    except (KeyError, TypeError):
        raise ValueError(f"{path} was written by another version; run `pipeline annotate export` again") from None


def _read_cell(value: Mapping[str, Any]) -> GoldCell:
    return GoldCell(tuple(value["scores"]), tuple(value["reasons"]))


def _require_variation(number: int, form: Sequence[str], gold: Mapping[str, GoldCells], manifest: Manifest, config: PlanConfig) -> None:
    """An exam whose right answers are all the same can be passed blindly, and agreement with it is not defined."""
    for dimension in manifest.dimensions:
        cells = [of[dimension] for group in form for of in gold[group].values() if dimension in of]
        if len({nearest_level(float(np.mean(cell.scores)), manifest.scale.levels) for cell in cells}) < 2:
            raise ValueError(
                f"annotate.plan.gold: in exam form {number} every gold score of {dimension} is the same, so it examines nothing; "
                f"raise exam_groups (now {config.exam_groups}) or add gold groups"
            )
