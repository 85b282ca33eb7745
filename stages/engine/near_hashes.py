"""Perceptual hashes of 64 bits that differ in few bits, found by DuckDB.

Two hashes within d bits are equal in at least one of d + 1 bands of their bits (Manku et al. 2007, section 3), so a join by a band finds
every pair. Time grows with the square of how many hashes share a band. Few bits make wide bands, which few hashes share.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stages.engine.tables import Tables

BITS = 64
CLUSTERED = pa.schema([("hash", pa.uint64()), ("first", pa.uint64())])


def bands(distance: int) -> list[int]:
    """Masks of the bands in at least one of which two hashes within the distance are equal: ``distance + 1`` of them."""
    edges = np.linspace(0, BITS, distance + 2).round().astype(int).tolist()
    return [(1 << high) - (1 << low) for low, high in pairwise(edges)]


def differing(one: str, other: str) -> str:
    """In how many bits two hashes (UBIGINT) differ, as an expression."""
    return f"bit_count(xor({one}, {other}))"


def near(one: str, other: str, distance: int) -> list[str]:
    """Conditions by which tables are joined, of which one holds for two hashes within the distance and none for others."""
    masks = [f"{mask}::UBIGINT" for mask in bands(distance)]
    return [
        " AND ".join(
            [
                f"{one} & {mask} = {other} & {mask}",
                f"{differing(one, other)} <= {distance}",
                *(f"xor({one}, {other}) & {earlier} <> 0" for earlier in masks[:place]),
            ]
        )
        for place, mask in enumerate(masks)
    ]


def join_near(database: Tables, table: str, column: str, distance: int) -> None:
    """Replace hashes (UBIGINT) in a column by the smallest of their cluster: hashes within the distance are in one cluster, and so are
    chains of them. The hashes that have a near one are in memory.
    """
    database.execute(f"CREATE OR REPLACE TABLE hashes AS SELECT DISTINCT {column} AS hash FROM {table}")
    one, other = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for condition in near("one.hash", "other.hash", distance):
        pairs = f"SELECT one.hash AS one, other.hash AS other FROM hashes AS one JOIN hashes AS other ON {condition}"
        for batch in database.rows(f"{pairs} WHERE one.hash < other.hash"):
            one.append(batch["one"].to_numpy())
            other.append(batch["other"].to_numpy())
    hashes, places = np.unique(np.concatenate([*one, *other]), return_inverse=True)
    left, right = np.split(places, 2)
    graph = coo_array((np.ones(len(left), bool), (left, right)), shape=(len(hashes), len(hashes)))
    cluster = connected_components(graph, directed=False)[1] if len(hashes) else places
    first = hashes[np.unique(cluster, return_index=True)[1]][cluster]
    database.keep("clustered", [pa.record_batch([pa.array(hashes), pa.array(first)], CLUSTERED)], CLUSTERED)
    database.execute(
        f"CREATE OR REPLACE TABLE {table} AS SELECT t.* REPLACE (coalesce(first, t.{column}) AS {column}) "
        f"FROM {table} t LEFT JOIN clustered ON t.{column} = clustered.hash"
    )
