"""The samples of every shard of a selection, in order, with what shards say of them: a part of the selection in memory at a time.

DuckDB joins and sorts narrow rows only. Wide ones (scores, measures) are read as they come, put into files by the place that their samples
have in the shards, and sorted file by file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from stages.contamination.compare import NAME
from stages.engine import contracts, storage, tables
from stages.engine.tables import PLACE, Tables, numbered, with_place
from stages.filter import known
from stages.filter.known import MEASURES
from stages.filter.schemas import SCORED
from stages.filter.selection.order import drawn
from stages.filter.selection.scored_rows import ScoredRows
from stages.shards.config import ShardsConfig

TOGETHER = 500_000
"""Samples whose wide rows are in memory, and sorted, at a time."""
LOCATION = ["position", "image_bytes"]
"""Columns that planning shards needs beside the scores."""
SELECTED = ["rank", "stratum", "score", "rule"]
"""Columns of a selection that shards say of their samples."""
PART = "part"
_BESIDE = pa.schema([*contracts.SCORES, *(SCORED.field(name) for name in (*LOCATION, *MEASURES))])
_PLACED = pa.schema([pa.field(PLACE, pa.int64()), *(contracts.SELECTION.field(name) for name in SELECTED)])
_WIDE = pa.schema(
    [
        *_PLACED,
        *_BESIDE,
        pa.field(PART, pa.int32()),
    ]
)


def of_shards(scored: ScoredRows, table: Path, config: ShardsConfig, scratch: Path) -> Iterator[pa.Table]:
    """The samples of each shard of the selection ``table``.

    Rows of the ``scores`` contract, :data:`LOCATION`, :data:`SELECTED`, and the text ``known``. ``scratch`` has room for them.
    """
    database, seed = scored.tables, config.shuffle_seed
    database.view("selection", [table], contracts.SELECTION)
    order = "rank" if seed is None else drawn(database, "shards", seed)
    in_order = database.rows(f"SELECT * FROM selection ORDER BY {order}, sample_id")
    database.keep("chosen", numbered(in_order), with_place(contracts.SELECTION))
    gates = known.by_place(_about(database, "gated", known.OF_GATES, "gate"))
    matches = known.by_place(_about(database, NAME, known.OF_CONTAMINATION, "reference, match"))
    for part in _cut(_arranged(scored, pq.read_metadata(table).num_rows, scratch), config):
        yield part.drop_columns([PLACE, *MEASURES]).append_column("known", known.texts(part, gates, matches))


def _about(database: Tables, name: str, columns: list[str], order: str) -> Iterator[pa.RecordBatch]:
    """Rows of the view ``name`` about chosen samples with the :data:`PLACE` of these, in its order."""
    # joined first, ordered then: one query of both would need the memory of two
    wanted = ", ".join([f"chosen.{PLACE}", *(f"{name}.{column}" for column in columns)])
    database.execute(f"CREATE OR REPLACE TABLE {name}_chosen AS SELECT {wanted} FROM {name} JOIN chosen USING (sample_id)")
    return database.rows(f"SELECT * FROM {name}_chosen ORDER BY {PLACE}, {order}")


def _arranged(scored: ScoredRows, count: int, scratch: Path) -> Iterator[pa.Table]:
    """All ``count`` chosen samples by their :data:`PLACE`, in tables of :data:`TOGETHER` rows: columns of ``_WIDE``."""
    selected = ", ".join(f"chosen.{name}" for name in (PLACE, *SELECTED))
    scored.tables.execute(f"CREATE OR REPLACE TABLE places AS SELECT number, {selected} FROM scored LEFT JOIN chosen USING (sample_id)")

    def rows() -> Iterator[pa.RecordBatch]:
        ordered = scored.tables.rows("SELECT * EXCLUDE (number) FROM places ORDER BY number")
        both = (storage.even(batches, tables.BATCH_ROWS) for batches in (ordered, tables.batches(scored.files, _BESIDE)))
        for place, beside in zip(*both, strict=True):
            part = pc.divide(place[PLACE], TOGETHER)
            wide = pa.table([*place.columns, *beside.columns, part.cast(pa.int32())], schema=_WIDE)
            yield from wide.filter(pc.is_valid(wide[PLACE])).combine_chunks().to_batches()

    parts = -(-count // TOGETHER)
    shutil.rmtree(scratch, ignore_errors=True)
    ds.write_dataset(
        pa.RecordBatchReader.from_batches(_WIDE, rows()), scratch, format="ipc", partitioning=[PART], max_partitions=max(parts, 1)
    )
    for number in range(parts):
        yield ds.dataset(scratch / str(number), format="ipc").to_table().sort_by(PLACE)
        shutil.rmtree(scratch / str(number))


def _cut(rows: Iterator[pa.Table], config: ShardsConfig) -> Iterator[pa.Table]:
    """The rows of every shard, in their order."""
    held: list[pa.Table] = []
    for more in rows:
        table = pa.concat_tables([*held, more])
        *whole, (first, _) = cuts(table["image_bytes"].to_numpy(), config)
        yield from (table.slice(begin, end - begin) for begin, end in whole)
        held = [table.slice(first)]  # of which the next rows may have more
    yield from held


def cuts(image_bytes: np.ndarray, config: ShardsConfig) -> Iterator[tuple[int, int]]:
    """First row and the row after the last of every shard; ``image_bytes``: int64 [n], in the order of the shards."""
    ends = np.cumsum(image_bytes)
    first = 0
    while first < len(ends):
        last = min(first + config.samples_per_shard, len(ends))
        if config.bytes_per_shard is not None:
            before = ends[first] - image_bytes[first]
            fitting = int(np.searchsorted(ends, before + config.bytes_per_shard, side="right"))
            last = min(last, max(fitting, first + 1))
        yield first, last
        first = last
