"""Clusters of perceptual hashes that are near each other: chains of hashes that differ in few bits.

Hashes that differ in at most b bits agree in at least one of b + 1 bands of their 64 bits, so only hashes with an equal band are compared.
Time grows with the square of how many distinct hashes share a band; few bits make wide bands, which few share.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

WIDTH = 64
"""Bits of a hash."""


def clusters(hashes: np.ndarray, bits: int) -> np.ndarray:
    """Cluster of every hash uint64 [k], all distinct: int64 [k]. Two hashes with at most ``bits`` different bits are in one cluster."""
    pairs = [pair for band in _bands(bits) for pair in _near(hashes, hashes & band, bits)]
    first = np.concatenate([a for a, _ in pairs] or [np.empty(0, np.int64)])
    second = np.concatenate([b for _, b in pairs] or [np.empty(0, np.int64)])
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(hashes), len(hashes)))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _bands(bits: int) -> list[np.uint64]:
    """Masks of ``bits + 1`` bands that together are the whole hash."""
    edges = np.linspace(0, WIDTH, bits + 2).round().astype(int).tolist()
    return [np.uint64((1 << high) - (1 << low)) for low, high in pairwise(edges)]


def _near(hashes: np.ndarray, band: np.ndarray, bits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of hashes with an equal ``band`` uint64 [k] that differ in at most ``bits`` bits."""
    # Sorted by band, equal bands lie together: compare each hash with the next, the one after it, and so on to the end of its run
    order = np.argsort(band)
    band, ordered = band[order], hashes[order]
    found = []
    places, step = np.arange(len(order) - 1), 1
    while len(places := places[band[places] == band[places + step]]):  # the hashes that share the band with the one `step` places on
        near = places[np.bitwise_count(ordered[places] ^ ordered[places + step]) <= bits]
        found.append((order[near], order[near + step]))
        step += 1
        places = places[places + step < len(order)]
    return found
