"""The work in memory: the groups of the packet, and the order in which each person sees them.

In: the folder ``annotate/`` with the packet and the plan. Out: a :class:`Work`. Nothing in it says which editor made a candidate. The
order of a group's candidates depends on the seed, the group and the person, so that no place is better for a candidate over many raters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.annotate.packet import plan
from stages.annotate.packet.plan import Plan
from stages.engine import storage
from stages.engine.ids import uniform


@dataclass(frozen=True)
class Group:
    """A group of the packet. candidates: image file by candidate id."""

    group_id: str
    instruction: str
    source: str
    candidates: Mapping[str, str]


@dataclass(frozen=True)
class Work:
    """images: path of every image that may be shown, by its name."""

    project: str
    dimensions: tuple[str, ...]
    levels: tuple[int, ...]
    rubric_version: str
    rubric: str
    plan: Plan
    groups: Mapping[str, Group] = field(repr=False)
    images: Mapping[str, str] = field(repr=False)

    def order(self, group_id: str, annotator: str) -> list[str]:
        """Candidates of a group in the order in which this person sees them."""
        shown = self.groups[group_id].candidates
        return sorted(shown, key=lambda candidate: (uniform("order on the page", self.plan.seed, annotator, candidate), candidate))


def load(folder: Path) -> Work:
    """The work in ``folder`` (the run's ``annotate/``). Raises ``ValueError`` where nothing was exported."""
    packet, plan_file = folder / "export", folder / "plan.json"
    if not (packet / "manifest.json").exists() or not plan_file.exists():
        raise ValueError(f"there is no work in {folder}: `pipeline annotate export` writes it")
    manifest = storage.read_json(packet / "manifest.json")
    drawn = plan.read(plan_file)
    if drawn.project != manifest["project"]:
        raise ValueError(f"{plan_file} is not of the packet beside it; run `pipeline annotate export` again")
    lines = (packet / "groups.jsonl").read_text(encoding="utf-8").splitlines()
    groups = {group.group_id: group for group in (_group(json.loads(line)) for line in lines)}
    missing = [group for group in drawn.groups if group not in groups]
    if missing:
        raise ValueError(f"{plan_file} names group {missing[0]}, which is not in the packet; run `pipeline annotate export` again")
    scale = manifest["scale"]
    return Work(
        project=manifest["project"],
        dimensions=tuple(manifest["dimensions"]),
        levels=tuple(range(round(scale["min"]), round(scale["max"]) + 1)),
        rubric_version=manifest["rubric_version"],
        rubric=(packet / "RUBRIC.md").read_text(encoding="utf-8"),
        plan=drawn,
        groups=groups,
        images={_file(name): f"{packet}/{name}" for name in manifest["images"]},
    )


def _group(row: Mapping[str, Any]) -> Group:
    candidates = {candidate["candidate_id"]: _file(candidate["image"]) for candidate in row["candidates"]}
    return Group(row["group_id"], row["instruction"], _file(row["source_image"]), candidates)


def _file(name: str) -> str:
    """The last part of a name in the packet; a Path for each of 76,000 images would double the time to start."""
    return name.rpartition("/")[2]
