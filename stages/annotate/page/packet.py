"""The packet and the plan in memory, and each person's order of candidates.

In: the folder ``annotate/``. Out: a :class:`Packet`, which does not contain the editors. The order of a group's candidates depends on the
seed, the group and the person, so over many raters no candidate has a better position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.annotate.packet import plan
from stages.annotate.packet.plan import RatingPlan
from stages.annotate.packet.write import groups_of
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
    """images: path of every image by its name."""

    project: str
    dimensions: tuple[str, ...]
    levels: tuple[int, ...]
    rubric_version: str
    rubric: str
    plan: RatingPlan
    groups: Mapping[str, PacketGroup] = field(repr=False)
    images: Mapping[str, str] = field(repr=False)

    def has_images(self, group_id: str) -> bool:
        """Whether all images of a group are on the disk as they were exported: their names begin with the hash of their content."""
        group = self.groups[group_id]
        paths = [Path(self.images[name]) for name in (group.source, *group.candidates.values())]
        return all(path.is_file() and storage.sha256_of(path).startswith(path.stem) for path in paths)

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
    scale = manifest["scale"]
    return Packet(
        project=manifest["project"],
        dimensions=tuple(manifest["dimensions"]),
        levels=tuple(range(round(scale["min"]), round(scale["max"]) + 1)),
        rubric_version=manifest["rubric_version"],
        rubric=(export / "RUBRIC.md").read_text(encoding="utf-8"),
        plan=drawn,
        groups=groups,
        images={_file(name): f"{export}/{name}" for name in manifest["images"]},
    )


def _group(row: Mapping[str, Any]) -> PacketGroup:
    candidates = {candidate["candidate_id"]: _file(candidate["image"]) for candidate in row["candidates"]}
    return PacketGroup(row["group_id"], row["instruction"], _file(row["source_image"]), candidates)


def _file(name: str) -> str:
    """File name of a path in the packet; a Path for each of 76,000 images would double the start time."""
    return name.rpartition("/")[2]
