"""Clusters of perceptual hashes that differ in few bits: DuckDB finds the pairs, the driver holds the hashes that have a near one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from reward.likeness import bands
from stages.engine.tables import Tables

NEAR = pa.schema([("hash", pa.uint64()), ("nearest", pa.uint64())])


def join_near(database: Tables, table: str, column: str, bits: int) -> None:
    """Replace hashes (uint64) in a column by one of their cluster: hashes within ``bits`` are in one cluster, and so are chains of them.

    Two hashes that near are equal in a band (reward/likeness.py), so each band is joined with itself.
    """
    database.execute(f"CREATE OR REPLACE TABLE hashes AS SELECT DISTINCT {column} AS hash FROM {table}")
    left, right = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for band in bands(bits).tolist():
        for batch in database.rows(
            f"SELECT a.hash AS one, b.hash AS other FROM hashes a JOIN hashes b ON a.hash & {band}::UBIGINT = b.hash & {band}::UBIGINT "
            f"WHERE a.hash < b.hash AND bit_count(xor(a.hash, b.hash)) <= {bits}"
        ):
            left.append(batch["one"].to_numpy())
            right.append(batch["other"].to_numpy())
    hashes, places = np.unique(np.concatenate([*left, *right]), return_inverse=True)
    one, other = np.split(places, 2)
    graph = coo_array((np.ones(len(one), bool), (one, other)), shape=(len(hashes), len(hashes)))
    cluster = connected_components(graph, directed=False)[1] if len(hashes) else places
    first = hashes[np.unique(cluster, return_index=True)[1]][cluster]
    database.keep("near", [pa.record_batch([pa.array(hashes), pa.array(first)], NEAR)], NEAR)
    database.execute(
        f"CREATE OR REPLACE TABLE {table} AS SELECT t.* REPLACE (coalesce(nearest, {column}) AS {column}) "
        f"FROM {table} t LEFT JOIN near ON {column} = near.hash"
    )
