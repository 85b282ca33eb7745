"""The plan of the rating work: which groups several people rate, which calibrate, and which are gold.

In: the manifest, the settings in ``annotate.plan``, and a file of experts' ratings where gold is wanted. Out: a :class:`Plan`, written as
``annotate/plan.json`` beside the packet. It names the gold groups and their scores, so it stays with the lead; the packet has none of it.

Everything is drawn from hashes of the group ids before anybody has rated, so a larger export never changes the role of a group. A cell
(candidate, dimension) is gold if ``annotate.quality.gold_raters`` experts rated it and their scores lie at most one level apart; every
score that an expert gave is accepted, and a cell on which experts differ by more is not counted for or against anyone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from stages import storage
from stages.annotate_config import AnnotateConfig, PlanConfig
from stages.ids import uniform
from stages.ratings.manifest import Manifest

FORMS = 2
"""Exam forms: who fails the first may try the second."""


@dataclass(frozen=True)
class GoldCell:
    """accepted: the scores that experts gave, lowest first; score: the most frequent of them (the lower of two); reasons: their words."""

    accepted: tuple[float, ...]
    mean: float
    score: float
    reasons: tuple[str, ...] = ()


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
    from stages.ratings import readers  # brings Ray, which the rating page need not wait for
    from stages.ratings.validate import validate

    delivery = readers.read(path)
    checked = validate(delivery, manifest, {}, batch="gold", now=datetime.now(UTC))
    if checked.quarantine:
        first = checked.quarantine[0]
        raise ValueError(f"annotate.plan.gold: {first.position}: {first.message}")
    ratings: defaultdict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in checked.accepted:
        ratings[row["source_id"], row["candidate_id"], row["dimension"]].append(row)
    gold: defaultdict[str, defaultdict[str, dict[str, GoldCell]]] = defaultdict(lambda: defaultdict(dict))
    for (group, candidate, dimension), rows in sorted(ratings.items()):
        scores = sorted(row["score"] for row in rows)
        if len({row["annotator"] for row in rows}) >= least and scores[-1] - scores[0] <= 1:
            gold[group][candidate][dimension] = _cell(scores, rows)
    if not gold:
        raise ValueError(f"annotate.plan.gold: no cell of {path} was rated alike by {least} experts; see annotate.quality.gold_raters")
    return {group: {candidate: dict(cells) for candidate, cells in candidates.items()} for group, candidates in gold.items()}


def write(path: Path, plan: Plan) -> None:
    """Publish ``plan.json``, readable by its owner alone: it holds the gold scores."""
    storage.publish_json(path, asdict(plan) | {"wanted": list(plan.wanted.items())})
    path.chmod(0o600)


def read(path: Path) -> Plan:
    """Inverse of :func:`write`."""
    value = storage.read_json(path)
    gold = {
        group: {candidate: {d: _read_cell(cell) for d, cell in cells.items()} for candidate, cells in candidates.items()}
        for group, candidates in value["gold"].items()
    }
    return Plan(**value | {"wanted": dict(value["wanted"]), "gold": gold})


def _cell(scores: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> GoldCell:
    counts = Counter(scores)
    most = max(counts, key=lambda score: (counts[score], -score))
    reasons = tuple(sorted({row["comment"] for row in rows if row["comment"]}))
    return GoldCell(tuple(sorted(counts)), sum(scores) / len(scores), most, reasons)


def _read_cell(value: Mapping[str, Any]) -> GoldCell:
    return GoldCell(tuple(value["accepted"]), value["mean"], value["score"], tuple(value["reasons"]))


def _require_variation(number: int, form: Sequence[str], gold: Mapping[str, GoldCells], manifest: Manifest, config: PlanConfig) -> None:
    """An exam whose right answers are all the same can be passed blindly, and agreement with it is not defined."""
    for dimension in manifest.dimensions:
        scores = {cells[dimension].score for group in form for cells in gold[group].values() if dimension in cells}
        if len(scores) < 2:
            raise ValueError(
                f"annotate.plan.gold: in exam form {number} every gold score of {dimension} is the same, so it examines nothing; "
                f"raise exam_groups (now {config.exam_groups}) or add gold groups"
            )
