"""The rating plan: the overlap, the calibration groups and the gold groups.

In: the rating task, the settings in ``annotate.plan``, and a file of expert ratings if gold is wanted. Out: a :class:`RatingPlan`, written
as ``annotate/plan.json`` beside the packet. It contains the gold scores, so only the lead may read it; the packet contains none of it.

Roles are drawn from hashes of the group ids before anybody has rated, so a further export never changes the role of a group while the
settings stay. It adds its groups to the plan; a listed group that has been rated keeps its raters and wants one more.
:mod:`stages.annotate.ratings.gold` defines gold cells. Other cells of a gold group are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as validated

from stages.annotate.config import AnnotateConfig, PlanConfig
from stages.annotate.formats import read as formats
from stages.annotate.ratings.gold import Gold, gold_cells, nearest_level
from stages.annotate.ratings.rating_task import ADJUDICATION, BENCHMARK, PILOT, RANKING, RatingTask
from stages.engine import contracts, storage
from stages.engine.ids import uniform

FORMS = 2
"""Number of exam forms. Who fails the first may try the second."""


@dataclass(frozen=True)
class GoldCell:
    """scores: of the experts, one each, lowest first; reasons: their comments."""

    scores: tuple[float, ...]
    reasons: tuple[str, ...] = ()

    @property
    def accepted(self) -> list[float]:
        """The scores that count as correct."""
        return sorted(set(self.scores))


GoldCells = Mapping[str, Mapping[str, GoldCell]]
"""Gold cells of a group by candidate and dimension."""


Disputed = Mapping[str, Mapping[str, Sequence[float]]]
"""Scores that were given to the disputed cells of a group, by candidate and dimension."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class RatingPlan:
    """wanted: number of raters per production group, in the order of assignment. rated: previous raters of groups that are re-annotated;
    their ``wanted`` counts further people. calibration, training, exams, hidden: groups in these roles. rounds: of the groups that were
    exported for a round of their own; calibrated: those of them that were calibration groups before, whose places nobody takes; disputed:
    the cells that were ever exported for adjudication."""

    project: str
    seed: int
    wanted: Mapping[str, int]
    rated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calibration: Sequence[str] = ()
    training: Sequence[str] = ()
    exams: Sequence[Sequence[str]] = ()
    hidden: Sequence[str] = ()
    hidden_share: float = 0.0
    rounds: Mapping[str, str] = field(default_factory=dict)
    calibrated: Sequence[str] = ()
    disputed: Mapping[str, Disputed] = field(default_factory=dict)
    gold: Mapping[str, GoldCells] = field(default_factory=dict)

    @property
    def groups(self) -> list[str]:
        """All groups in all roles."""
        return [*self.wanted, *self.calibration, *self.training, *(group for form in self.exams for group in form), *self.hidden]

    def gold_of(self, groups: Iterable[str]) -> Gold:
        """Gold cells of these gold groups."""
        return flat({group: self.gold[group] for group in groups})


def draw(
    task: RatingTask,
    groups: Sequence[str],
    config: PlanConfig,
    gold: Mapping[str, GoldCells],
    *,
    seed: int,
    rated: Mapping[str, Collection[str]] | None = None,
    first: Sequence[str] = (),
    before: RatingPlan | None = None,
    round: str | None = None,
    disputed: Mapping[str, Disputed] | None = None,
) -> RatingPlan:
    """Give every group its role.

    groups: those of the packet in their order, the gold groups among them. rated: raters of groups that have been rated; each of these
    groups gets one further rater. first: groups to assign before all others. before: the earlier plan of this packet; its re-annotations
    and its order of assignment stay. round: of the groups in ``first``, with ``disputed`` cells for adjudication; else they are production
    or re-annotation. A group is in one round at a time. Raises ``ValueError`` when there are too few gold groups for the training and the
    exams.
    """
    golden = sorted(gold, key=lambda group: (uniform("gold", seed, group), group))
    needed = config.training_groups + FORMS * config.exam_groups
    if gold and len(golden) < needed:
        raise ValueError(
            f"annotate.plan.gold: {config.gold} has {len(golden)} gold groups, but training_groups and {FORMS} forms of exam_groups need "
            f"{needed}; add expert ratings or lower these numbers"
        )
    ends = [config.training_groups + form * config.exam_groups for form in range(FORMS + 1)]
    exams = [golden[begin:end] for begin, end in pairwise(ends)] if gold else []
    for number, form in enumerate(exams, 1):
        _require_variation(number, form, gold, task, config)
    again = {**(before.rated if before else {}), **(rated or {})}
    rounds = {group: name for group, name in (before.rounds if before else {}).items() if group not in set(first)}
    rounds |= {group: round for group in first if round is not None and group not in gold}
    cells = _added(before.disputed if before else {}, disputed or {})
    kept = set(before.calibration) if before else set()
    once = [group for group in groups if group not in {*gold, *rounds} and (group not in again or group in kept)]
    calibrated = sorted({*kept, *(before.calibrated if before else ())} & rounds.keys())
    places = max(0, config.calibration - len(calibrated))
    calibration, fresh = once[:places], set(once[places:])
    again = {group: tuple(sorted(again[group])) for group in groups if group in again and group not in {*gold, *calibration}}
    fresh -= again.keys()
    people = {group: config.overlap_raters if uniform("overlap", seed, group) < config.overlap else 1 for group in fresh}
    people |= {group: raters_of(name, config) for group, name in rounds.items()}
    order = dict.fromkeys([*first, *(before.wanted if before else ()), *groups])
    return RatingPlan(
        project=task.project,
        seed=seed,
        wanted={group: people.get(group, 1) for group in order if group in fresh or group in again or group in rounds},
        rated=again,
        calibration=calibration,
        training=golden[: config.training_groups],
        exams=exams,
        hidden=golden[needed:],
        hidden_share=config.hidden_gold if len(golden) > needed else 0.0,
        rounds=rounds,
        calibrated=calibrated,
        disputed=cells,
        gold={group: gold[group] for group in golden},
    )


def _added(before: Mapping[str, Disputed], more: Mapping[str, Disputed]) -> dict[str, Disputed]:
    """Cells of both by group; the scores of a cell in both are those of ``more``."""
    found: dict[str, Disputed] = dict(before)
    for group, cells in more.items():
        there = found.get(group, {})
        found[group] = {candidate: {**there.get(candidate, {}), **cells.get(candidate, {})} for candidate in {**there, **cells}}
    return found


def raters_of(round: str, config: PlanConfig) -> int:
    """People who rate a group that was exported for a round."""
    return {PILOT: config.pilot_raters, BENCHMARK: config.benchmark_raters, RANKING: config.ranking_raters}.get(round, 1)


def read_gold(config: AnnotateConfig, task: RatingTask) -> dict[str, GoldCells]:
    """Gold cells by group from the file ``annotate.plan.gold``; empty without one. Raises ``ValueError`` for a rating that ingest would not
    accept."""
    path, least = config.plan.gold, config.quality.gold_raters
    if path is None:
        return {}
    from stages.annotate.ratings.validate import validate

    delivery = formats.read(path, dimensions=task.dimensions)
    checked = validate(delivery, task, {}, batch="gold", now=datetime.now(UTC))
    if checked.quarantine:
        first = checked.quarantine[0]
        raise ValueError(f"annotate.plan.gold: {first.position}: {first.message}")
    table = contracts.table("ratings", checked.accepted)
    reasons: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in checked.accepted:
        if row["comment"] and row["round"] not in (ADJUDICATION, RANKING):
            reasons[row["candidate_id"], row["dimension"]].add(row["comment"])
    gold: defaultdict[str, defaultdict[str, dict[str, GoldCell]]] = defaultdict(lambda: defaultdict(dict))
    cells = gold_cells(table, set(table["annotator"].to_pylist()), least, task.scale.levels)
    for (candidate, dimension), scores in sorted(cells.items(), key=lambda cell: (task.group_of[cell[0][0]], *cell[0])):
        gold[task.group_of[candidate]][candidate][dimension] = GoldCell(scores, tuple(sorted(reasons[candidate, dimension])))
    if not gold:
        raise ValueError(f"annotate.plan.gold: no cell of {path} has {least} experts within one level (annotate.quality.gold_raters)")
    return {group: {candidate: dict(cells) for candidate, cells in candidates.items()} for group, candidates in gold.items()}


def flat(gold: Mapping[str, GoldCells]) -> Gold:
    """Gold cells of all groups by candidate and dimension."""
    return {(candidate, d): cell.scores for cells in gold.values() for candidate, of in cells.items() for d, cell in of.items()}


def write(path: Path, plan: RatingPlan) -> None:
    """Publish ``plan.json``, which only its owner can read, because it contains the gold scores."""
    storage.publish_json(path, asdict(plan) | {"wanted": list(plan.wanted.items())}, private=True)


def read(path: Path) -> RatingPlan:
    """Inverse of :func:`write`. Raises ``ValueError`` for a plan of another version."""
    value = storage.read_json(path)
    try:
        return RatingPlan(**value | {"wanted": dict(value["wanted"])})
    except (KeyError, TypeError, ValidationError):
        raise ValueError(f"{path} was written by another version; `pipeline annotate export --replace` writes a new plan") from None


def belongs_to(path: Path, task: RatingTask) -> bool:
    """Whether there is a plan of this task."""
    return path.exists() and read(path).project == task.project


def _require_variation(number: int, form: Sequence[str], gold: Mapping[str, GoldCells], task: RatingTask, config: PlanConfig) -> None:
    """Refuse an exam whose gold scores are all the same: it can be passed blindly, and kappa is not defined."""
    for dimension in task.dimensions:
        cells = [of[dimension] for group in form for of in gold[group].values() if dimension in of]
        if len({nearest_level(float(np.mean(cell.scores)), task.scale.levels) for cell in cells}) < 2:
            raise ValueError(
                f"annotate.plan.gold: in exam form {number} every gold score of {dimension} is the same, so it tests nothing; "
                f"raise exam_groups (now {config.exam_groups}) or add gold groups"
            )
