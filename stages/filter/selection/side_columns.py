"""Columns beside the scores that quotas and clusters name: the kind of edit, its source, what the data set says of it.

| name | where it is |
| --- | --- |
| ``task``, ``language`` | ``scores`` |
| ``dataset``, ``licence``, ``instruction`` | ``edits`` |
| ``source`` | the hash of the source image in ``inspected`` where the run has it, else its path in ``edits`` |
| ``metadata.KEY`` | a key of the JSON text in ``edits.metadata``; rows without it have the value "" |
| ``source_sha256``, ``edited_phash`` and the other hashes | ``inspected``, where the run has it |
| ``flag.NAME`` | yes or no: whether ``scores.flags`` has the name of a gate, or ``contamination`` |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine.contracts import SCHEMAS

SCORED = ("task", "language")
DELIVERED = ("dataset", "licence", "instruction")
METADATA = "metadata."
FLAG = "flag."
INSPECTED = "inspected"
SOURCE_HASH = "source_sha256"
HASHES = ("_sha256", "_phash")


@dataclass(frozen=True)
class SideColumn:
    """``values`` makes it of a column of an artifact: text, or perceptual hashes (uint64) where ``hashes``."""

    artifact: str
    column: str
    values: Callable[[pa.ChunkedArray], pa.Array | pa.ChunkedArray]
    hashes: bool = False

    @property
    def type(self) -> pa.DataType:
        """Of the values."""
        return pa.uint64() if self.hashes else pa.string()


def side_column(name: str, wanted_by: str, artifacts: Collection[str], flags: Collection[str]) -> SideColumn:
    """The column of that name. Raises ``ValueError`` for a name that there is no column for.

    artifacts: those that the run has. flags: names of flags that its scores can have.
    """
    if name.startswith(METADATA) and len(name) > len(METADATA):
        return SideColumn("edits", "metadata", lambda metadata: _of_metadata(metadata, name.removeprefix(METADATA)))
    if name.startswith(FLAG):
        flag = name.removeprefix(FLAG)
        check_flag(flag, wanted_by, flags)
        return SideColumn("scores", "flags", lambda found: pc.if_else(pa.array(has_any(found, [flag])), "yes", "no"))
    inspected = [column for column in SCHEMAS[INSPECTED].names if column.endswith(HASHES)] if INSPECTED in artifacts else []
    if name == "source" and SOURCE_HASH in inspected:
        name = SOURCE_HASH
    for artifact, names in (("scores", SCORED), ("edits", DELIVERED), (INSPECTED, inspected)):
        if name in names:
            hashes = pa.types.is_uint64(SCHEMAS[artifact].field(name).type)
            return SideColumn(artifact, name, (lambda found: found) if hashes else _text, hashes)
    if name == "source":
        return SideColumn("edits", "source", lambda source: _paths(source, wanted_by))
    known = ", ".join([*SCORED, *DELIVERED, "source", "metadata.KEY", "flag.NAME", *inspected])
    raise ValueError(f"{wanted_by}: there is no column {name}; it can be {known}")


def check_flag(name: str, wanted_by: str, flags: Collection[str]) -> None:
    """Raise ``ValueError`` for a flag that the scores cannot have."""
    if not flags:
        raise ValueError(f"{wanted_by}: the scores of this run have no flags, because all gates are off; set their actions in filter.gates")
    if name not in flags:
        there = ", ".join(sorted(flags))
        raise ValueError(f"{wanted_by}: there is no flag {name}, its gate is off, or it has no references; flags are {there}")


def has_any(flags: pa.ChunkedArray, names: Collection[str]) -> np.ndarray:
    """Which rows have one of the flags, bool [n]; ``flags``: lists of names."""
    lists = flags.combine_chunks()
    wanted = pc.is_in(pc.list_flatten(lists), value_set=pa.array(names, pa.string()))
    found = np.zeros(len(lists), bool)
    found[pc.list_parent_indices(lists).filter(wanted).to_numpy()] = True
    return found


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(values, "")


def _paths(source: pa.ChunkedArray, wanted_by: str) -> pa.ChunkedArray:
    paths = pc.struct_field(source, "path")
    if paths.null_count:
        raise ValueError(f"{wanted_by}: source images of this data set have no names to tell sources apart by; leave it out")
    return paths


def _of_metadata(metadata: pa.ChunkedArray, key: str) -> pa.Array:
    """A key of JSON objects as text; each distinct text is parsed once."""
    encoded = metadata.combine_chunks().dictionary_encode()
    parsed = [json.loads(text).get(key, "") for text in encoded.dictionary.to_pylist()]
    texts = [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in parsed]
    return pa.array(texts, pa.string()).take(encoded.indices)
