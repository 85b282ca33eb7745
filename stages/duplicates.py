"""Edits that occur twice: the first one by position counts, later ones are set aside.

Whether a row is a duplicate depends on the rows of all units, so it is decided when they are all there, by the driver, from
ids alone. Units that hold duplicates are published again without them, under a name made of their own and the dropped rows; so
nothing is scored again, and the result depends neither on the number of workers nor on the order in which units end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages import contracts
from stages.ids import settings_hash
from stages.rundir import Part, StepFolder
from stages.units import Done, Quarantined, UnitRecord, publish_unit

REASON = "duplicate"
ALIGNED = ("edits", "scores")
"""Tables of a unit that hold the same samples in the same order."""
_BEFORE = "quarantine before"


def later_ones(ids: pa.ChunkedArray) -> np.ndarray:
    """Which values occurred before, bool [n]."""
    encoded = ids.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)  # numbered in the order of first occurrence
    highest_before = np.concatenate([np.array([-1]), np.maximum.accumulate(codes)])[: len(codes)]
    return codes <= highest_before


def set_aside(folder: StepFolder, done: Done) -> Done:
    """The records of all units, with later duplicates moved from ``edits`` and ``scores`` to the quarantine."""
    parts = [_read(folder, record, "edits", ["sample_id", "position"]) for record in done.records]
    table = pa.concat_tables(parts)
    duplicate = later_ones(table["sample_id"])
    if not duplicate.any():
        return done
    repeated = pc.is_in(table["sample_id"], value_set=table["sample_id"].filter(pa.array(duplicate)).combine_chunks())
    first: dict[str, str] = {}
    for row in table.filter(repeated).to_pylist():
        first.setdefault(row["sample_id"], row["position"])
    drops = np.split(duplicate, np.cumsum([part.num_rows for part in parts])[:-1])
    return Done([_without(folder, record, drop, first) if drop.any() else record for record, drop in zip(done.records, drops, strict=True)])


def artifacts(done: Done) -> dict[str, list[Part]]:
    """Parts per artifact. A unit that was published again keeps its first quarantine beside the second, which also keeps its folder."""
    merged = done.artifacts()
    merged.pop(_BEFORE, None)
    before = [record.parts[_BEFORE] for record in done.records if _BEFORE in record.parts]
    return merged | {"quarantine": before + merged.get("quarantine", [])}


def _without(folder: StepFolder, record: UnitRecord, drop: np.ndarray, first: Mapping[str, str]) -> UnitRecord:
    tables = {name: _read(folder, record, name) for name in ALIGNED}
    assert tables["edits"]["sample_id"] == tables["scores"]["sample_id"], f"edits and scores of unit {record.key} are not aligned"
    dropped = tables["edits"].filter(pa.array(drop)).select(["sample_id", "position"]).to_pylist()
    message = "source, instruction and edited image are those of"
    rows = [Quarantined(row["sample_id"], row["position"], REASON, f"{message} {first[row['sample_id']]}") for row in dropped]
    kept = {name: table.filter(pa.array(~drop)) for name, table in tables.items()}
    key = settings_hash(REASON, record.key, [row.position for row in rows])
    published = publish_unit(folder.path, key, kept | {"quarantine": contracts.table("quarantine", [asdict(row) for row in rows])})
    return replace(
        record,
        key=key,
        parts=published | {_BEFORE: record.parts["quarantine"]},
        rows_out=record.rows_out - len(rows),
        quarantined=record.quarantined | {REASON: len(rows)},
    )


def _read(folder: StepFolder, record: UnitRecord, name: str, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(folder.path / record.parts[name].path, columns=columns, partitioning=None)
