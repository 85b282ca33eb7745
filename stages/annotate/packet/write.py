"""The packet for annotators: groups, images, a table to fill in, the rubric.

In: the rating task and the generate step's images. Out: a folder ``export/``, published as a whole and byte for byte reproducible, with all
layouts: ``groups.jsonl`` for the rating page and programs, ``ratings-template.csv`` to fill in, ``label-studio/``. It is blind: image names
are content hashes, groups and candidates are in a seeded order, and it contains no editor and no seed. Images are copied as they came, or
as PNG where browsers would show another picture, few at a time, so memory does not grow with their number.
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
from stages.annotate.packet import label_studio
from stages.annotate.ratings.delivery import REQUIRED
from stages.annotate.ratings.rating_task import RatingTask, Scale
from stages.engine import images, storage
from stages.engine.ids import ID_DIGITS
from stages.engine.rundir import StepFolder
from stages.engine.stored_images import references

TEMPLATE = (*REQUIRED, "rated_at", "round", "seconds", "comment", "rubric_version", "project")
"""Columns of the table to fill in: the canonical long format."""

_RUBRICS = Path(__file__).with_name("rubrics")
_RUBRIC_SCALE = Scale(1, 4)

LAYOUTS = ("page", "csv", "jsonl", "label-studio")


def csv_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV in UTF-8 with these columns. An absent cell is empty; a cell of another column is an error."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def write(target: Path, generate: StepFolder, task: RatingTask, chosen: Sequence[str]) -> Path:
    """Write the packet of the chosen groups in their order, replacing another packet; returns its folder."""
    rubric = _rubric(task)
    content = {
        "layouts": list(LAYOUTS),
        "project": task.project,
        "made_from": dict(task.inputs),
        "dimensions": list(task.dimensions),
        "scale": {"min": task.scale.minimum, "max": task.scale.maximum, "step": task.scale.step},
        "rubric_version": task.rubric_version,
        "rubric_sha256": hashlib.sha256(rubric.encode()).hexdigest(),
        "groups": {group: list(task.sampled[group]) for group in chosen},
    }
    if _is_complete(target, content):
        return target
    partial = storage.partial_folder(target)
    (partial / "images").mkdir()
    sources = _copy_images(generate, "sources", "source_id", set(chosen), partial)
    candidates = _copy_images(generate, "candidates", "candidate_id", {c for group in chosen for c in task.sampled[group]}, partial)
    instruction = generate.column("sources", "source_id", "instruction")
    groups = [
        {
            "group_id": group,
            "instruction": instruction[group],
            "source_image": sources[group][0],
            "candidates": [{"candidate_id": c, "image": candidates[c][0]} for c in task.sampled[group]],
        }
        for group in chosen
    ]
    (partial / "groups.jsonl").write_text("".join(json.dumps(group, ensure_ascii=False) + "\n" for group in groups), encoding="utf-8")
    (partial / "ratings-template.csv").write_bytes(csv_table(_blank_rows(chosen, task), TEMPLATE))
    (partial / "RUBRIC.md").write_text(rubric, encoding="utf-8")
    (partial / "label-studio").mkdir()
    (partial / "label-studio" / "tasks.json").write_text(label_studio.tasks(groups, task), encoding="utf-8")
    (partial / "label-studio" / "labeling-config.xml").write_text(label_studio.labeling_config(groups, task), encoding="utf-8")
    storage.publish_json(partial / "manifest.json", content | {"images": dict([*sources.values(), *candidates.values()])})
    storage.replace_folder(partial, target)
    return target


def belongs_to(target: Path, task: RatingTask) -> bool:
    """Whether the folder is a complete packet of this task, of all its groups or of some."""
    return _is_complete(target, {"project": task.project, "made_from": dict(task.inputs), "rubric_version": task.rubric_version})


def _is_complete(target: Path, content: Mapping[str, Any]) -> bool:
    """Whether the folder is a packet with this content and all its images."""
    path = target / "manifest.json"
    there = storage.read_json(path) if path.exists() else {}
    return all(there.get(name) == value for name, value in content.items()) and all((target / name).exists() for name in there["images"])


def _blank_rows(groups: Sequence[str], task: RatingTask) -> list[dict[str, Any]]:
    same = {"rubric_version": task.rubric_version, "project": task.project}
    return [
        {"group_id": group, "candidate_id": candidate, "dimension": dimension, **same}
        for group in groups
        for candidate in task.sampled[group]
        for dimension in task.dimensions
    ]


def _rubric(task: RatingTask) -> str:
    path = _RUBRICS / f"{task.rubric_version}.md"
    if not path.is_file():
        have = ", ".join(sorted(p.stem for p in _RUBRICS.glob("*.md")))
        raise ValueError(f"annotate.rubric_version: there is no rubric {task.rubric_version!r} to export (there is {have})")
    if task.scale != _RUBRIC_SCALE:
        raise ValueError(f"annotate.scale_min, scale_max: rubric {path.stem} describes the levels {_RUBRIC_SCALE}, not {task.scale}")
    return path.read_text(encoding="utf-8")


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
        (folder / name).write_bytes(data)
        copied[row] = (name, sha256)
    assert copied.keys() == set(wanted), f"{artifact} without an image"
    return copied
