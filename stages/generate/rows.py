"""Rows of the table ``sources``."""

from __future__ import annotations

from typing import Any

from stages.datasets.slices import Edit
from stages.engine import images
from stages.engine.ids import content_id, uniform


def source_id(edit: Edit) -> str:
    """Id of a source: its image and instruction."""
    return content_id("source", edit.source, edit.instruction)


def image_group(edit: Edit) -> str:
    """Id of the source's image, which its sources with other instructions share."""
    return content_id("group", edit.source)


def source_row(edit: Edit, validation_share: float, group: str | None = None) -> dict[str, Any]:
    """Row of the ``sources`` contract. Where the data set names no split, the group decides, so that all rows of a group share one.

    group: that of the image where it has near duplicates; default: the image's own.
    """
    group = group or image_group(edit)
    return {
        "source_id": source_id(edit),
        "dataset": edit.dataset,
        "benchmark": edit.benchmark,
        "split": edit.split or ("validation" if uniform("split", group) < validation_share else "train"),
        "group": group,
        "image": images.stored(edit.source, edit.source_path),
        "instruction": edit.instruction,
        "language": edit.language,
        "task": edit.task,
        "licence": edit.licence,
        "metadata": edit.metadata,
    }
