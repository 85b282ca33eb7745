"""Source and edited images of filtered edits, from what the filter step published: its ``edits`` tables, or its shards."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.report.published import Published

STEP = "filter"


@dataclass(frozen=True)
class EditedImages:
    """Encoded images of one edit and the instruction that it answers to."""

    source: bytes
    edited: bytes
    instruction: str
    task: str


def edited_images(published: Published, sample_ids: Iterable[str]) -> dict[str, EditedImages]:
    """Of the given samples those whose images the run holds. An edit that no selection kept may have none."""
    wanted = set(sample_ids)
    found: dict[str, EditedImages] = {}
    for artifact in ("edits", "examples"):
        table = published.table(STEP, artifact, ["sample_id", "source", "edited", "instruction", "task"], where=("sample_id", wanted))
        for row in table.to_pylist() if table else []:
            found[row["sample_id"]] = EditedImages(row["source"]["bytes"], row["edited"]["bytes"], row["instruction"], row["task"])
    for shard in sorted((published.path / STEP / "shards").rglob("*.tar")):
        if wanted <= found.keys():
            break
        found |= _in_shard(str(shard), wanted - found.keys())
    return found


def _in_shard(shard: str, wanted: set[str]) -> dict[str, EditedImages]:
    """Members ``<sample_id>.source.<ext>``, ``<sample_id>.edited.<ext>`` and ``<sample_id>.json`` of the wanted samples."""
    members: dict[str, dict[str, bytes]] = {}
    with tarfile.open(shard) as tar:
        for member in tar:
            sample_id, _, rest = member.name.partition(".")
            if sample_id in wanted and (file := tar.extractfile(member)):
                members.setdefault(sample_id, {})[rest.split(".")[0]] = file.read()
    found = {}
    for sample_id, parts in members.items():
        facts = json.loads(parts["json"])
        found[sample_id] = EditedImages(parts["source"], parts["edited"], facts["instruction"], facts.get("task") or "")
    return found
