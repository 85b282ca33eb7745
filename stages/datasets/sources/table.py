"""Sources of your own: JSON Lines of images and instructions.

A row that names no split is assigned by its image, so that two instructions about one picture never stand on both sides.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from typing import Any

from reward.inputs.decoding import decode
from stages.config import TableSources
from stages.engine import images, storage
from stages.engine.contracts import Quarantined
from stages.engine.ids import content_id, uniform


def plan(config: TableSources, *, rows: int) -> list[dict[str, Any]]:
    """Slices of parsed lines. Raises ``ValueError`` for a missing table, a line that is not JSON, or a wrong number of rows."""
    slices = []
    for entry in config.tables:
        lines = _lines(entry.path)
        if entry.expected is not None and len(lines) != entry.expected:
            raise ValueError(f"{entry.path} has {len(lines)} rows, the configuration expects {entry.expected} of {entry.name}")
        slices += [
            {
                "dataset": "table",
                "name": entry.name,
                "path": entry.path,
                "first": first,
                "rows": lines[first : first + rows],
                "count": len(lines[first : first + rows]),
                "validation_share": config.validation_share,
            }
            for first in range(0, len(lines), rows)
        ]
    return slices


def placed(piece: dict[str, Any]) -> dict[str, Any]:
    """The slice with the folder of its images, which is no part of what it is."""
    return piece | {"folder": storage.absolute(posixpath.dirname(piece["path"]))}


def load(piece: dict[str, Any]) -> Iterator[dict[str, Any] | Quarantined]:
    """Rows of the ``sources`` contract, or the reason why a row cannot be one."""
    for offset, row in enumerate(piece["rows"]):
        position = f"{piece['path']}[{piece['first'] + offset}]"
        row_id = str(row.get("id", piece["first"] + offset))
        instruction = row.get("instruction")
        if not isinstance(instruction, str) or not instruction.strip():
            yield Quarantined(row_id, position, "empty-instruction", "the row has no instruction")
            continue
        try:
            data = storage.read_bytes(posixpath.join(piece["folder"], str(row["image"])))
            decode(data, what=f"image {row['image']}")
        except KeyError:
            yield Quarantined(row_id, position, "missing-image", "the row has no column image")
            continue
        except OSError as error:
            yield Quarantined(row_id, position, "missing-image", f"image {row['image']} cannot be read: {error}")
            continue
        except ValueError as error:
            yield Quarantined(row_id, position, "undecodable-image", str(error))
            continue
        group = content_id("group", data)
        held_out = uniform("split", group) < piece["validation_share"]
        yield {
            "source_id": content_id("source", data, instruction),
            "dataset": piece["name"],
            "split": row.get("split") or ("validation" if held_out else "train"),
            "group": group,
            "image": images.stored(data, str(row["image"])),
            "instruction": instruction,
            "language": str(row.get("language", "en")),
            "task": str(row.get("task", "")),
            "metadata": "{}",
        }


def _lines(path: str) -> list[dict[str, Any]]:
    try:
        text = storage.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"source table {path} cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); a source table has one object per line") from None
        if not isinstance(rows[-1], dict):
            raise ValueError(f"{path}, line {number}: a row is an object with image and instruction")
    return rows
