"""Source and edited images of the edits at the ends of the scores, which the filter step keeps as ``examples``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.report.published import Published


@dataclass(frozen=True)
class EditedImages:
    """Encoded images of one edit and its instruction."""

    source: bytes
    edited: bytes
    instruction: str


def edited_images(published: Published, sample_ids: Iterable[str]) -> dict[str, EditedImages]:
    """Images by sample id, of those given samples whose images the step keeps."""
    columns = ["sample_id", "source", "edited", "instruction"]
    table = published.table("filter", "examples", columns, where=("sample_id", sample_ids))
    rows = table.to_pylist() if table else []
    return {row["sample_id"]: EditedImages(row["source"]["bytes"], row["edited"]["bytes"], row["instruction"]) for row in rows}
