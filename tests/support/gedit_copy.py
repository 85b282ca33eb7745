"""A small copy of GEdit-Bench in its published layout: Parquet files of the Hub with the documented columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from stages.evaluate_editor.items.gedit_bench import TASKS

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(value: int, size: tuple[int, int] = (48, 32)) -> bytes:
    """Squares of random colours: another picture for every value."""
    colours = np.random.default_rng(value).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    pixels = colours.repeat(size[1] // 4, 0).repeat(size[0] // 6, 1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def rows(per_task: int = 2, languages: tuple[str, ...] = ("en", "cn")) -> list[dict[str, Any]]:
    """Items of all tasks; the same keys and images in every language; every second one is in the intersection."""
    found = []
    for number in range(per_task * len(TASKS)):
        task = list(TASKS)[number % len(TASKS)]
        for language in languages:
            found.append(
                {
                    "task_type": task,
                    "key": f"k{number:03}",
                    "instruction": f"do {task} {number}" if language == "en" else f"请修改 {number}",
                    "instruction_language": language,
                    "input_image": {"bytes": png(number), "path": None},
                    "input_image_raw": {"bytes": png(number, (96, 64)), "path": None},
                    "Intersection_exist": number // len(TASKS) % 2 == 0,
                }
            )
    return found


def write(folder: Path, entries: list[dict[str, Any]], files: int = 2) -> Path:
    """The rows in some files, in row groups of five."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("task_type", "key", "instruction", "instruction_language")),
            ("input_image", IMAGE),
            ("input_image_raw", IMAGE),
            ("Intersection_exist", pa.bool_()),
        ]
    )
    for number in range(files):
        table = pa.Table.from_pylist(entries[number::files], schema=schema)
        pq.write_table(table, folder / f"train-{number:05}-of-{files:05}.parquet", row_group_size=5)
    return folder


def share_changed(source: np.ndarray, edited: np.ndarray, changed: np.ndarray) -> float | None:
    """A measure as a user would name it: of edits that have the size of their source; none for a copy of it."""
    assert source.shape == edited.shape and changed.shape == source.shape[:2] and changed.dtype == bool
    return float(changed.mean()) if changed.any() else None
