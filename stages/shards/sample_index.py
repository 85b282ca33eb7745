"""The sample index of a folder of shards, ``samples.parquet``: what the tars contain, without opening them; read shard by shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.engine import storage
from stages.engine.contracts import DIMENSION_SCORE, dimension_scores

Part = tuple[str, str]
"""A member by sample id and kind (one of PARTS)."""

SAMPLES = "samples.parquet"
PARTS = ("source", "edited", "json")
"""Members of a sample, in their order in the tar."""
BATCH_ROWS = 1 << 14

SAMPLE_INDEX = pa.schema(
    [
        ("sample_id", pa.string()),
        ("shard", pa.string()),
        ("rank", pa.int64()),
        ("instruction", pa.string()),
        ("overall_mean", pa.float64()),
        ("overall_sigma", pa.float64()),
        ("dimensions", pa.list_(DIMENSION_SCORE)),
        ("source_sha256", pa.string()),
        ("edited_sha256", pa.string()),
        ("json_sha256", pa.string()),
    ]
)
"""Columns of ``samples.parquet``: one row per sample, in the order of the shards."""


class SampleIndex:
    """A sample index that agrees with the index of its folder. rows: samples of each shard, in the order of the shards."""

    def __init__(self, path: str, rows: Mapping[str, int]) -> None:
        self.path, self.rows = path, rows

    def by_shard(self, columns: Sequence[str] = tuple(SAMPLE_INDEX.names)) -> Iterator[tuple[str, pa.Table]]:
        """Name and rows of every shard in their order. A batch and the rows of a shard are in memory."""
        batches = _batches(self.path, columns)
        held = pa.schema([SAMPLE_INDEX.field(name) for name in columns]).empty_table()
        for name, rows in self.rows.items():
            while held.num_rows < rows:
                held = pa.concat_tables([held, pa.Table.from_batches([next(batches)])])
            yield name, held.slice(0, rows)
            held = held.slice(rows)


def open_sample_index(folder: str, index: Mapping[str, Any]) -> tuple[SampleIndex | None, list[str]]:
    """The sample index of a folder, or None and what is wrong with it or with what it says of the shards.

    index: content of ``index.json``.
    """
    path = f"{folder}/{SAMPLES}"
    try:
        sha256 = storage.sha256_of(path)
    except FileNotFoundError:
        return None, [f"{SAMPLES} is missing"]
    if sha256 != index["samples"]["sha256"]:
        return None, [f"{SAMPLES} was changed: its sha256 differs from index.json"]
    if foreign := _foreign(path):
        return None, [f"{SAMPLES} {foreign}"]
    said = {shard["name"]: shard["rows"] for shard in index["shards"]}
    runs = list(_runs(path))
    there: Counter[str] = Counter()
    for name, rows in runs:
        there[name] += rows
    problems = [
        f"index.json says {said.get(name, 0)} samples in {name}, {SAMPLES} lists {there[name]}"
        for name in sorted(said.keys() | there.keys(), key=str)
        if said.get(name, 0) != there[name]
    ]
    in_order = [name for name, _ in groupby(name for name, _ in runs)]
    if not problems and in_order != [name for name, rows in said.items() if rows]:
        problems = [f"{SAMPLES} lists samples in another order than index.json has the shards"]
    return (None, problems) if problems else (SampleIndex(path, said), [])


def _foreign(path: str) -> str | None:
    """What is not as in a sample index that this program wrote."""
    with storage.open_file(path) as file:
        try:
            found = pq.read_schema(file)
        except pa.ArrowInvalid:
            return "is no Parquet file"
    for field in SAMPLE_INDEX:
        if field.name not in found.names:
            return f"has no column {field.name}"
        if found.field(field.name).type != field.type:
            return f"has {found.field(field.name).type} in column {field.name}, which holds {field.type}"
    return None


def _runs(path: str) -> Iterator[tuple[str, int]]:
    """Names of shards as they follow each other, each with the number of its rows that lie together in a batch."""
    for batch in _batches(path, ["shard"]):
        runs = pc.run_end_encode(batch["shard"])
        lengths = (end - begin for begin, end in pairwise([0, *runs.run_ends.to_pylist()]))
        yield from zip(runs.values.to_pylist(), lengths, strict=True)


def _batches(path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with storage.open_file(path) as file:
        yield from storage.read_batches(file, BATCH_ROWS, columns)


def expected_members(rows: Mapping[str, Mapping[str, Any]]) -> dict[Part, str]:
    """sha256 by member of the samples of rows of ``samples.parquet``."""
    return {(sample_id, part): row[f"{part}_sha256"] for sample_id, row in rows.items() for part in PARTS}


def index_row(sample_id: str, shard: str, facts: Mapping[str, Any], json_sha256: str) -> dict[str, Any]:
    """The row of a sample whose JSON has these facts, ``sha256`` of its images among them."""
    return {
        "sample_id": sample_id,
        "shard": shard,
        "rank": facts["selection"]["rank"],
        "instruction": facts["instruction"],
        "overall_mean": facts["scores"]["overall"]["mean"],
        "overall_sigma": facts["scores"]["overall"]["sigma"],
        "dimensions": dimension_scores({name: score for name, score in facts["scores"].items() if name != "overall"}),
        "source_sha256": facts["sha256"]["source"],
        "edited_sha256": facts["sha256"]["edited"],
        "json_sha256": json_sha256,
    }
