"""Entries of encoded pairs in the run directory: where each is, and reading one, which checks its hash.

Units of encoding publish a table ``encoded``: one row per pair or null condition, with its bytes or the reason why there are none. A row is
found by its key, which names its content, so it does not matter which unit made it, or for which arm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from finetune.editing_model import Condition
from finetune.precompute.entry import EncodedPair, read_condition, read_pair
from finetune.training.pairs import Bucket
from stages.engine import storage, unit_log
from stages.engine.ids import settings_hash
from stages.engine.rundir import StepFolder
from stages.engine.units import UnitRecord

TABLE = "encoded"
SIZES = ("target_rows", "target_columns", "reference_rows", "reference_columns")
ENCODED = pa.schema(
    [
        ("key", pa.string()),
        ("name", pa.string()),
        ("ratio_difference", pa.float64()),
        *((size, pa.int32()) for size in SIZES),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("sha256", pa.string()),
        ("entry", pa.binary()),
    ]
)
"""``name``: sample id, or sha256 of the source of a null condition. ``reason``, ``message``: why there is no entry. Sizes: of latents."""
_PLACES = pa.schema(
    [
        ("key", pa.string()),
        *((size, pa.int32()) for size in SIZES),
        *((f"{what}{name}", kind) for what in ("", "null_") for name, kind in (
            ("file", pa.dictionary(pa.int32(), pa.string())), ("group", pa.int32()), ("row", pa.int32()), ("sha256", pa.string())
        )),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is: a file below the step's folder, a row group and a row in it. sha256: of its bytes."""

    file: str
    group: int
    row: int
    sha256: str
    size: Bucket
    ratio_difference: float


@dataclass(frozen=True)
class SetAside:
    """Why a pair has no entry. ratio_difference: None where an image could not be read."""

    reason: str
    message: str
    ratio_difference: float | None = None


@dataclass(frozen=True)
class Cache:
    """What is encoded: places by key, pairs without entry by key, and the units that have them."""

    places: Mapping[str, Place]
    set_aside: Mapping[str, SetAside]
    units: tuple[UnitRecord, ...]

    def outcome(self, key: str, bound: float) -> Place | SetAside | None:
        """What is known of a pair, where ratios may differ by ``bound``; None where it has to be encoded."""
        found = self.places.get(key) or self.set_aside.get(key)
        if found is None or found.ratio_difference is None:
            return found
        if found.ratio_difference > bound:
            return ratio_refused(found.ratio_difference, bound)
        return found if isinstance(found, Place) else None

    def knows(self, key: str, null_key: str, bound: float) -> bool:
        """Whether a pair needs no encoding: it is set aside, or has its entry and its null condition."""
        outcome = self.outcome(key, bound)
        return isinstance(outcome, SetAside) or (outcome is not None and null_key in self.places)


def ratio_refused(difference: float, bound: float) -> SetAside:
    """A pair whose images would have to be stretched."""
    message = f"the aspect ratios of source and edit differ by {difference:.1%}, more than {bound:.1%}"
    return SetAside("aspect-ratio", message, difference)


def find(step: StepFolder, encoding: str) -> Cache:
    """All that units of this encoding have made. A unit whose files have changed counts as not done."""
    of_encoding = (record for record in unit_log.sound(step).values() if record.family == encoding)
    return of_units(step, [record for record in of_encoding if unit_log.is_whole(step, record)])


def of_units(step: StepFolder, units: Sequence[UnitRecord]) -> Cache:
    """What some units have made."""
    places: dict[str, Place] = {}
    set_aside: dict[str, SetAside] = {}
    columns = [name for name in ENCODED.names if name != "entry"]
    for record in units:
        path = record.parts[TABLE].path
        with pq.ParquetFile(step.path / path) as file:
            for group in range(file.num_row_groups):
                for number, row in enumerate(file.read_row_group(group, columns=columns).to_pylist()):
                    if row["reason"] is not None:
                        set_aside[row["key"]] = SetAside(row["reason"], row["message"], row["ratio_difference"])
                        continue
                    size = Bucket(*(row[name] for name in SIZES))
                    places[row["key"]] = Place(path, group, number, row["sha256"], size, row["ratio_difference"])
    return Cache(places, set_aside, tuple(units))


def publish_pairs(folder: Path, name: str, keys: Sequence[tuple[str, str]], cache: Cache) -> str:
    """Write the list of pairs that a training reads; returns its path below ``folder``. keys: of pairs and of their null conditions."""
    rows = []
    for key, null in keys:
        place, other = cache.places[key], cache.places[null]
        row: dict[str, Any] = {"key": key} | dict(zip(SIZES, place.size, strict=True))
        for what, found in (("", place), ("null_", other)):
            row |= {f"{what}{part}": getattr(found, part) for part in ("file", "group", "row", "sha256")}
        rows.append(row)
    path = f"pairs/{name}.parquet"
    storage.publish_bytes(folder / path, storage.table_bytes(pa.Table.from_pylist(rows, schema=_PLACES)))
    return path


class CachedPairs:
    """`finetune.training.pairs.StoredPairs` of a list of pairs; memory has their places, some 200 bytes each, and no entry."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        self._table = storage.read_table(folder / path)
        sizes = np.stack([self._table[name].to_numpy() for name in SIZES], axis=1)  # [n, 4]
        found, number = np.unique(sizes, axis=0, return_inverse=True)
        self.buckets = tuple(Bucket(*map(int, size)) for size in found)
        self.bucket_of = number.reshape(-1)
        self.identity = settings_hash(self._table["key"].to_pylist())
        self.count = self._table.num_rows

    def read(self, number: int) -> EncodedPair:
        """See ``StoredPairs``."""
        return read_pair(self._bytes(number, ""))

    def read_null(self, number: int) -> Condition:
        """See ``StoredPairs``."""
        return read_condition(self._bytes(number, "null_"))

    def _bytes(self, number: int, what: str) -> bytes:
        file, group, row, sha256 = (self._table[f"{what}{name}"][number].as_py() for name in ("file", "group", "row", "sha256"))
        path = self._folder / file
        try:
            with pq.ParquetFile(path) as table:
                data = table.read_row_group(group, columns=["entry"], use_threads=False)["entry"][row].as_py()
        except (OSError, IndexError, pa.ArrowException) as error:
            raise ValueError(f"{path} is missing or damaged ({error}); run the step again, which encodes its pairs again") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"{path}: the entry in row {row} of row group {group} was changed; run the step again, which encodes it again")
        return data
