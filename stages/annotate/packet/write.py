"""The packet for annotators: groups, images, a table to fill in, the rubric.

In: the rating task and the generate step's images. Out: a folder ``export/``, byte for byte reproducible, with all layouts:
``groups.jsonl`` for the rating page and programs (all groups), ``ratings-template.csv`` to fill in and ``label-studio/`` (the groups of the
latest export). It is blind: image names are content hashes, groups and candidates are in a seeded order, and it contains no editor and no
seed. Images are copied as they came, or as PNG where browsers would show another picture, few at a time, so memory does not grow with
their number.

A further export adds its groups: files are only added or replaced atomically, images first and the manifest last, so that a server and
open browsers find everything at any time. A packet of another task is replaced as a whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward.inputs.decoding import for_browser
from stages.annotate.packet import label_studio, rubric
from stages.annotate.ratings.delivery import REQUIRED
from stages.annotate.ratings.rating_task import RatingTask
from stages.engine import images, storage
from stages.engine.ids import ID_DIGITS
from stages.engine.rundir import StepFolder
from stages.engine.stored_images import references

TEMPLATE = (*REQUIRED, "rated_at", "round", "seconds", "comment", "rubric_version", "project")
"""Columns of the table to fill in: the canonical long format."""

LAYOUTS = ("page", "csv", "jsonl", "label-studio")


def csv_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV in UTF-8 with these columns. An absent cell is empty; a cell of another column is an error."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def write(
    target: Path, generate: StepFolder, task: RatingTask, chosen: Sequence[str], texts: Mapping[str, str], *, replace: bool = False
) -> list[str]:
    """Add the chosen groups to the packet in their order; returns all its groups, earlier ones first.

    texts: the rubric by language. replace: start a new packet.
    """
    earlier = {} if replace else _manifest_of(target, task)
    folder = target if earlier else storage.partial_folder(target)
    rows = {row["group_id"]: row for row in groups_of(folder)} if earlier else {}
    fresh = [group for group in dict.fromkeys([*rows, *chosen]) if group not in rows or not _has_images(folder, rows[group])]
    (folder / "images").mkdir(exist_ok=True)
    sources = _copy_images(generate, "sources", "source_id", set(fresh), folder)
    candidates = _copy_images(generate, "candidates", "candidate_id", {c for group in fresh for c in task.sampled[group]}, folder)
    instruction = generate.column("sources", "source_id", "instruction")
    rows |= {
        group: {
            "group_id": group,
            "instruction": instruction[group],
            "source_image": sources[group][0],
            "candidates": [{"candidate_id": c, "image": candidates[c][0]} for c in task.sampled[group]],
        }
        for group in fresh
    }
    latest = [rows[group] for group in chosen]
    rubrics = rubric.packed(folder / "rubrics", earlier.get("rubrics", {}), task.rubric_version, texts)
    first = texts.get(rubric.DEFAULT) or next(iter(texts.values()))
    names = rubric.level_words(first, task.dimensions, task.scale.levels)
    files = {
        "groups.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()),
        "ratings-template.csv": csv_table(_blank_rows(chosen, task), TEMPLATE).decode(),
        "RUBRIC.md": first,
        "label-studio/tasks.json": label_studio.tasks(latest, task),
        "label-studio/labeling-config.xml": label_studio.labeling_config(latest, task, names),
    }
    for name, text in files.items():
        storage.publish_bytes(folder / name, text.encode())
    manifest = {
        "layouts": list(LAYOUTS),
        "project": task.project,
        "made_from": dict(task.inputs),
        "dimensions": list(task.dimensions),
        "scale": {"min": task.scale.minimum, "max": task.scale.maximum, "step": task.scale.step},
        "rubric_version": task.rubric_version,
        "rubrics": rubrics,
        "groups": {group: list(task.sampled[group]) for group in rows},
        "images": earlier.get("images", {}) | dict([*sources.values(), *candidates.values()]),
    }
    storage.publish_json(folder / "manifest.json", manifest)
    if not earlier:
        storage.replace_folder(folder, target)
    return list(rows)


def groups_of(target: Path) -> list[dict[str, Any]]:
    """The rows of ``groups.jsonl``."""
    lines = (target / "groups.jsonl").read_text(encoding="utf-8").split("\n")  # not splitlines: an instruction may have U+2028
    return [json.loads(line) for line in lines if line]


def is_of(target: Path, task: RatingTask) -> bool:
    """Whether the folder is a packet of this task, to which an export adds."""
    return bool(_manifest_of(target, task))


def belongs_to(target: Path, task: RatingTask) -> bool:
    """Whether the folder is a complete packet of this task and its rubric, of all its groups or of some, with all its images."""
    manifest = _manifest_of(target, task)
    known = "rubrics" in manifest and manifest["rubric_version"] == task.rubric_version
    return known and all((target / name).exists() for name in manifest["images"])


def rubric_versions(target: Path) -> list[str]:
    """Versions of the rubric that were exported; none without a packet."""
    path = target / "manifest.json"
    return rubric.versions(storage.read_json(path).get("rubrics", {})) if path.exists() else []


def _manifest_of(target: Path, task: RatingTask) -> dict[str, Any]:
    """The manifest of a packet of this task; empty for no packet, or one of another task."""
    path = target / "manifest.json"
    there = storage.read_json(path) if path.exists() else {}
    content = {"project": task.project, "made_from": dict(task.inputs)}
    return there if all(there.get(name) == value for name, value in content.items()) else {}


def _has_images(folder: Path, row: Mapping[str, Any]) -> bool:
    return all((folder / name).exists() for name in (row["source_image"], *(candidate["image"] for candidate in row["candidates"])))


def _blank_rows(groups: Sequence[str], task: RatingTask) -> list[dict[str, Any]]:
    same = {"rubric_version": task.rubric_version, "project": task.project}
    return [
        {"group_id": group, "candidate_id": candidate, "dimension": dimension, **same}
        for group in groups
        for candidate in task.sampled[group]
        for dimension in task.dimensions
    ]


def _copy_images(generate: StepFolder, artifact: str, key: str, wanted: Collection[str], folder: Path) -> dict[str, tuple[str, str]]:
    """Copy the images of the wanted rows; returns their file names (made of the content hash) and sha256 by id."""
    copied = {}
    for row, image in references(generate, artifact, key, wanted).items():
        data = image.read()
        if images.extension(data) is None:
            raise ValueError(f"the image of {artifact} row {row} is neither PNG, JPEG nor WebP; raters cannot be shown it")
        data = for_browser(data, what=f"the image of {artifact} row {row}")
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"images/{sha256[:ID_DIGITS]}.{images.extension(data)}"
        partial = folder / f"{storage.TEMPORARY}image"
        partial.write_bytes(data)
        partial.replace(folder / name)
        copied[row] = (name, sha256)
    assert copied.keys() == set(wanted), f"{artifact} without an image"
    return copied
