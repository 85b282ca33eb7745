"""The packet and the plan in memory, and each person's order of candidates.

In: the folder ``annotate/``. Out: a :class:`Packet`, which does not contain the editors. The order of a group's candidates depends on the
seed, the group and the person, so over many raters no candidate has a better position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stages.annotate.packet import plan, rubric
from stages.annotate.packet.plan import RatingPlan
from stages.annotate.packet.write import groups_of
from stages.annotate.ratings.rating_task import ADJUDICATION, RANKING, RatingTask, Scale
from stages.engine import storage
from stages.engine.ids import uniform


@dataclass(frozen=True)
class PacketGroup:
    """A group of the packet. candidates: image file by candidate id."""

    group_id: str
    instruction: str
    source: str
    candidates: Mapping[str, str]


@dataclass(frozen=True)
class Packet:
    """rubrics: texts of the current version by language; versions: of all rubrics that were exported; images: path of every image by its
    name."""

    project: str
    dimensions: tuple[str, ...]
    levels: tuple[float, ...]
    rubric_version: str
    rubrics: Mapping[str, str]
    versions: tuple[str, ...]
    plan: RatingPlan
    groups: Mapping[str, PacketGroup] = field(repr=False)
    images: Mapping[str, str] = field(repr=False)

    @cached_property
    def task(self) -> RatingTask:
        """The rating task of the packet's groups."""
        first, second, *_, last = (*self.levels, self.levels[-1])
        sampled = {group: tuple(of.candidates) for group, of in self.groups.items()}
        group_of = {candidate: group for group, candidates in sampled.items() for candidate in candidates}
        return RatingTask({}, self.dimensions, Scale(first, last, second - first), self.rubric_version, group_of, sampled)

    def has_images(self, group_id: str) -> bool:
        """Whether all images of a group are on the disk as they were exported: their names begin with the hash of their content."""
        group = self.groups[group_id]
        paths = [Path(self.images[name]) for name in (group.source, *group.candidates.values())]
        return all(path.is_file() and storage.sha256_of(path).startswith(path.stem) for path in paths)

    def levels_of(self, group_id: str, round: str) -> tuple[float, ...]:
        """The scores that a group can get: levels of the scale, or ranks."""
        return tuple(range(1, 1 + len(self.groups[group_id].candidates))) if round == RANKING else self.levels

    def cells(self, group_id: str, round: str) -> dict[tuple[str, str], Sequence[float]]:
        """Candidates and dimensions that a group asks for in a round, each with the scores that were given before, which an adjudicator
        sees."""
        if round == ADJUDICATION:
            disputed = self.plan.disputed.get(group_id, {})
            return {(candidate, d): given for candidate, of in disputed.items() for d, given in of.items()}
        return {(candidate, d): () for candidate in self.groups[group_id].candidates for d in self.dimensions}

    def order(self, group_id: str, annotator: str) -> list[str]:
        """Candidates of a group in this person's order."""
        shown = self.groups[group_id].candidates
        return sorted(shown, key=lambda candidate: (uniform("order on the page", self.plan.seed, annotator, candidate), candidate))


def load(folder: Path) -> Packet:
    """The packet in ``folder`` (the run's ``annotate/``). Raises ``ValueError`` when nothing was exported."""
    export, plan_file = folder / "export", folder / "plan.json"
    if not (export / "manifest.json").exists() or not plan_file.exists():
        raise ValueError(f"there is no exported packet in {folder}; run `pipeline annotate export`")
    drawn = plan.read(plan_file)  # first: an export that goes on meanwhile publishes it last, so that all that it names is there
    manifest = storage.read_json(export / "manifest.json")
    if drawn.project != manifest["project"]:
        raise ValueError(f"{plan_file} does not belong to the packet beside it; run `pipeline annotate export` again")
    groups = {group.group_id: group for group in map(_group, groups_of(export))}
    missing = [group for group in drawn.groups if group not in groups]
    if missing:
        raise ValueError(f"{plan_file} names group {missing[0]}, which is not in the packet; run `pipeline annotate export` again")
    version = manifest["rubric_version"]
    files = {
        name.removeprefix(version).removesuffix(".md").removeprefix("."): name
        for name in manifest["rubrics"]
        if name.split(".")[0] == version
    }
    return Packet(
        project=manifest["project"],
        dimensions=tuple(manifest["dimensions"]),
        levels=tuple(map(_whole, Scale(*(manifest["scale"][name] for name in ("min", "max", "step"))).levels)),
        rubric_version=version,
        rubrics={language: (export / "rubrics" / name).read_text(encoding="utf-8") for language, name in sorted(files.items())},
        versions=tuple(rubric.versions(manifest["rubrics"])),
        plan=drawn,
        groups=groups,
        images={_file(name): f"{export}/{name}" for name in manifest["images"]},
    )


def _group(row: Mapping[str, Any]) -> PacketGroup:
    candidates = {candidate["candidate_id"]: _file(candidate["image"]) for candidate in row["candidates"]}
    return PacketGroup(row["group_id"], row["instruction"], _file(row["source_image"]), candidates)


def _whole(level: float) -> float:
    """A whole level as an int, so that it is stored and shown without a decimal point."""
    return int(level) if level == round(level) else level


def _file(name: str) -> str:
    """File name of a path in the packet; a Path for each of 76,000 images would double the start time."""
    return name.rpartition("/")[2]
