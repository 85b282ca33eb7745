"""The log of finished units: one JSON line per unit, with a checksum of its own.

A line that a kill tore, or that does not have its checksum, is passed over: its unit is done again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from stages.engine import storage
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import UnitRecord

NAME = "units.jsonl"
_CHECK = "check"


def line(record: UnitRecord) -> str:
    """The line of a finished unit."""
    plain = asdict(record)
    return json.dumps({**plain, _CHECK: _checksum(plain)}) + "\n"


def sound(folder: StepFolder) -> dict[str, UnitRecord]:
    """The newest record of every unit by its key, as far as it is intact; its files are not looked at. A torn last line is removed."""
    log = folder.path / NAME
    if not log.exists():
        return {}
    data = log.read_bytes()
    whole, _, torn = data.rpartition(b"\n")
    if torn:
        storage.publish_bytes(log, whole + b"\n" if whole else b"")
    records = (_record(text) for text in whole.split(b"\n"))
    return {record.key: record for record in records if record is not None}


def forget(folder: StepFolder, reasons: Collection[str]) -> int:
    """Remove the files of units that set rows aside for one of these reasons, so that the step does these units again; returns the number
    of such rows."""
    rows = 0
    for record in sound(folder).values():
        aside = sum(count for reason, count in record.quarantined.items() if reason in reasons)
        files = folder.path / "units" / record.key
        if aside and files.is_dir():
            shutil.rmtree(files)
            rows += aside
    return rows


def is_whole(folder: StepFolder, record: UnitRecord) -> bool:
    """Whether the files of a unit have the logged hashes."""
    return all(folder.has(part.path, part.sha256) for part in record.parts.values())


def _record(text: bytes) -> UnitRecord | None:
    try:
        value = json.loads(text)
        if value.pop(_CHECK) != _checksum(value):
            return None
        value["parts"] = {name: Part(**part) for name, part in value["parts"].items()}
        return UnitRecord(**value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _checksum(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
