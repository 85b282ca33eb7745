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
from dataclasses import dataclass, field

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
class Column:
    """A column as codes int64 [n] into its distinct values ``values`` [k], text or perceptual hashes (uint64)."""

    codes: np.ndarray
    values: pa.Array

    def by_name(self) -> tuple[np.ndarray, list[str]]:
        """Codes int64 [n] into the sorted values, and these values. Neither depends on the order of the rows."""
        order = pc.array_sort_indices(self.values).to_numpy()
        place_of = np.empty(len(order), np.int64)
        place_of[order] = np.arange(len(order))
        return place_of[self.codes], pc.cast(self.values.take(pa.array(order)), pa.string()).to_pylist()


@dataclass(frozen=True)
class SideColumns:
    """``read(artifact, columns)`` gives the table of an artifact of the filter step; ``artifacts`` are those that the run has; ``flags``
    are the names of flags that its scores can have."""

    read: Callable[[str, list[str]], pa.Table]
    artifacts: frozenset[str] = field(default_factory=lambda: frozenset({"scores", "edits"}))
    flags: frozenset[str] = frozenset()

    def check_flag(self, name: str, wanted_by: str) -> None:
        """Raise ``ValueError`` for a flag that the scores cannot have."""
        if not self.flags:
            raise ValueError(
                f"{wanted_by}: the scores of this run have no flags of gates: all are off, or an earlier version made the scores; "
                "run the filter step again with --force"
            )
        if name not in self.flags:
            there = ", ".join(sorted(self.flags))
            raise ValueError(f"{wanted_by}: there is no flag {name}, its gate is off, or it has no references; flags are {there}")

    def column(self, name: str, wanted_by: str, ids: pa.ChunkedArray) -> Column:
        """The column for the samples ``ids`` in their order. Raises ``ValueError`` for a name that there is no column for."""
        found = self._values(name, wanted_by)
        values = found["value"].combine_chunks()
        encoded = (pc.fill_null(values, "") if pa.types.is_string(values.type) else values).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        if not found["sample_id"].equals(ids):
            rows = pc.index_in(ids, value_set=found["sample_id"].combine_chunks())
            assert rows.null_count == 0, "every scored sample is in the other tables"
            codes = codes[rows.to_numpy()]
        return Column(codes, encoded.dictionary)

    def _values(self, name: str, wanted_by: str) -> pa.Table:
        """``sample_id`` and the column as ``value``."""
        if name.startswith(METADATA) and len(name) > len(METADATA):
            table = self.read("edits", ["sample_id", "metadata"])
            return pa.table({"sample_id": table["sample_id"], "value": _of_metadata(table["metadata"], name.removeprefix(METADATA))})
        if name.startswith(FLAG):
            self.check_flag(name.removeprefix(FLAG), wanted_by)
            table = self.read("scores", ["sample_id", "flags"])
            marked = pa.array(has_any(table["flags"], [name.removeprefix(FLAG)]))
            return pa.table({"sample_id": table["sample_id"], "value": pc.if_else(marked, "yes", "no")})
        inspected = [column for column in SCHEMAS[INSPECTED].names if column.endswith(HASHES)] if INSPECTED in self.artifacts else []
        if name == "source" and SOURCE_HASH in inspected:
            name = SOURCE_HASH
        for artifact, names in (("scores", SCORED), ("edits", DELIVERED), (INSPECTED, inspected)):
            if name in names:
                return self.read(artifact, ["sample_id", name]).rename_columns(["sample_id", "value"])
        if name == "source":
            table = self.read("edits", ["sample_id", "source"])
            paths = pc.struct_field(table["source"], "path")
            if paths.null_count:
                raise ValueError(f"{wanted_by}: source images of this data set have no names to tell sources apart by; leave it out")
            return pa.table({"sample_id": table["sample_id"], "value": paths})
        known = ", ".join([*SCORED, *DELIVERED, "source", "metadata.KEY", "flag.NAME", *inspected])
        raise ValueError(f"{wanted_by}: there is no column {name}; it can be {known}")


def has_any(flags: pa.ChunkedArray, names: Collection[str]) -> np.ndarray:
    """Which rows have one of the flags, bool [n]; ``flags``: lists of names."""
    lists = flags.combine_chunks()
    wanted = pc.is_in(pc.list_flatten(lists), value_set=pa.array(names, pa.string()))
    found = np.zeros(len(lists), bool)
    found[pc.list_parent_indices(lists).filter(wanted).to_numpy()] = True
    return found


def _of_metadata(metadata: pa.ChunkedArray, key: str) -> pa.Array:
    """A key of JSON objects as text; each distinct text is parsed once."""
    encoded = metadata.combine_chunks().dictionary_encode()
    parsed = [json.loads(text).get(key, "") for text in encoded.dictionary.to_pylist()]
    texts = [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in parsed]
    return pa.array(texts, pa.string()).take(encoded.indices)
