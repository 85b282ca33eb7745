"""Bounds on the text of a row, so that neither a prompt nor the JSON of a shard grows without limit.

An instruction, an id or a file name beyond its bound sets the row aside: half of it would be another one. Columns that the pipeline only
passes on are cut instead, with a mark in their place.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from stages.datasets.slices import Edit
from stages.engine.contracts import Quarantined

INSTRUCTION_CHARACTERS = 100_000
NAME_CHARACTERS = 4096
"""Of an id, a label, and the name of a file."""
COLUMN_CHARACTERS = 4096
"""Of a passed-on column as JSON. One that has more becomes ``{"cut": its first characters, "characters": how many it has}``."""
COLUMNS_CHARACTERS = 65536
"""Of all passed-on columns of a row as JSON. Those beyond it, by their names in order, are replaced by their number."""
LEFT_OUT = "columns left out"


def bounded(edit: Edit) -> Edit | Quarantined:
    """The edit with its passed-on columns cut where they are too long, or why it is set aside."""
    names = (edit.row_id, edit.source_path or "", edit.edited_path or "", edit.task, edit.language, edit.licence)
    for what, length, most in (
        ("instruction", len(edit.instruction), INSTRUCTION_CHARACTERS),
        ("id, task, language, licence or file name", max(map(len, names)), NAME_CHARACTERS),
    ):
        if length > most:
            message = f"its {what} has {length:,} characters; at most {most:,} are read"
            return Quarantined(edit.row_id[:NAME_CHARACTERS], edit.position, "too-long", message)
    if len(edit.metadata) <= COLUMN_CHARACTERS:
        return edit
    return replace(edit, metadata=_text(_columns(json.loads(edit.metadata))))


def _columns(columns: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    size = 0
    for number, name in enumerate(sorted(columns)):
        text = _text(columns[name])
        value = columns[name] if len(text) <= COLUMN_CHARACTERS else {"cut": text[:COLUMN_CHARACTERS], "characters": len(text)}
        size += len(_text({name: value}))
        if size > COLUMNS_CHARACTERS:
            return found | {LEFT_OUT: len(columns) - number}
        found[name] = value
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
