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

from stages.engine import contracts, storage, tables
from stages.engine.tables import PLACE, Tables, batches, numbered, with_place
from stages.filter import known
from stages.filter.decide import INSPECTED
from stages.filter.known import MEASURES
from stages.filter.selection.order import fixed_width, hashed
from stages.filter.selection.scored_rows import ScoredRows
from stages.shards.config import ShardsConfig

TOGETHER = 500_000
"""Samples whose wide rows are in memory, and sorted, at a time."""
LOCATION = ["position", "image_bytes"]
"""Columns of ``edits`` that planning shards needs beside the scores."""
SELECTED = ["rank", "stratum", "score", "rule"]
"""Columns of a selection that shards say of their samples."""
PART = "part"
_PLACED = pa.schema([pa.field(PLACE, pa.int64()), *(contracts.SELECTION.field(name) for name in SELECTED)])
_WIDE = pa.schema(
    [
        *_PLACED,
        *contracts.SCORES,
        *(contracts.EDITS.field(name) for name in LOCATION),
        *(INSPECTED.field(name) for name in MEASURES),
        pa.field(PART, pa.int32()),
    ]
)


def keep_found(scored: ScoredRows) -> None:
    """Make what :func:`of_shards` needs of all scored edits: the tables ``scores``, ``gated`` and ``contamination``, numbered."""
    for name, columns in (("scores", []), ("gated", known.OF_GATES), ("contamination", known.OF_CONTAMINATION)):
        fields = [contracts.SCHEMAS[name].field(column) for column in ("sample_id", *columns)]
        found = scored.read(name, ["sample_id", *columns])
        scored.tables.keep(name, numbered(found), with_place(pa.schema(fields)))


def of_shards(scored: ScoredRows, table: Path, config: ShardsConfig, scratch: Path) -> Iterator[pa.Table]:
    """The samples of each shard of the selection ``table``, after :func:`keep_found`.

    Rows of the ``scores`` contract, :data:`LOCATION`, :data:`SELECTED`, and the text ``known``. ``scratch`` has room for them.
    """
    database, seed = scored.tables, config.shuffle_seed

    def shuffled() -> Iterator[pa.RecordBatch]:
        for rows in batches([table], contracts.SELECTION):
            order = rows["rank"].to_numpy() if seed is None else hashed(fixed_width(pa.chunked_array([rows["sample_id"]])), "shards", seed)
            yield rows.append_column("shuffled", pa.array(order, pa.float64()))

    schema = contracts.SELECTION.append(pa.field("shuffled", pa.float64()))
    database.keep("chosen", shuffled(), schema)
    database.keep("chosen", numbered(database.rows("SELECT * FROM chosen ORDER BY shuffled, sample_id")), with_place(schema))
    of_gates, of_matches = (
        known.Found(_about(database, name, columns))
        for name, columns in (("gated", known.OF_GATES), ("contamination", known.OF_CONTAMINATION))
    )
    for part in _cut(_arranged(scored, pq.read_metadata(table).num_rows, scratch), config):
        yield part.drop_columns([PLACE, *MEASURES]).append_column("known", known.texts(part, of_gates, of_matches))


def _about(database: Tables, name: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of the table ``name`` about chosen samples with the :data:`PLACE` of these, in its order."""
    # joined first, ordered then: one query of both would need the memory of two
    wanted = ", ".join([f"chosen.{PLACE}", *(f"{name}.{column}" for column in columns), f"{name}.{PLACE} AS found"])
    database.execute(f"CREATE OR REPLACE TABLE {name}_chosen AS SELECT {wanted} FROM {name} JOIN chosen USING (sample_id)")
    return database.rows(f"SELECT * EXCLUDE (found) FROM {name}_chosen ORDER BY {PLACE}, found")


def _arranged(scored: ScoredRows, count: int, scratch: Path) -> Iterator[pa.Table]:
    """All ``count`` chosen samples by their :data:`PLACE`, in tables of :data:`TOGETHER` rows: columns of ``_WIDE``."""
    selected = ", ".join(f"chosen.{name}" for name in (PLACE, *SELECTED))
    scored.tables.execute(
        f"CREATE OR REPLACE TABLE places AS SELECT scores.{PLACE} AS number, {selected} FROM scores LEFT JOIN chosen USING (sample_id)"
    )
    beside = {"scores": contracts.SCORES.names, "edits": LOCATION, "inspected": MEASURES}

    def rows() -> Iterator[pa.RecordBatch]:
        ordered = scored.tables.rows("SELECT * EXCLUDE (number) FROM places ORDER BY number")
        for place, batch in zip(storage.even(ordered, tables.BATCH_ROWS), scored.batches(**beside), strict=True):
            columns = [*place.columns, *(batch[artifact][name] for artifact, names in beside.items() for name in names)]
            part = pc.divide(place[PLACE], TOGETHER)
            wide = pa.table([*columns, part.cast(pa.int32())], schema=_WIDE)
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
