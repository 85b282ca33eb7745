"""Where the members of tars are, by name: 26 bytes per member while a plan is made (twice that for a moment)."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from stages.datasets.io.files import opened
from stages.datasets.io.locations import digest, digests_of, repeated
from stages.engine import tar

LOCATION = np.dtype([("tar", "<u2"), ("offset", "<u8"), ("size", "<u8")])
"""Number of a tar in a list of names, offset of the image's first byte in it (0: there is no such member), size in bytes."""
LOCATION_SIGNS = LOCATION.itemsize // 3 * 4
"""Characters of a location as text: base64 makes four of three bytes, and 18 bytes leave no rest."""


class TarIndex:
    """Locations of the members of some tars of a folder."""

    def __init__(self, folder: str, names: Sequence[str], *, what: str) -> None:
        """Scan the headers. Raises ``ValueError`` for a tar that was cut short and for a name that occurs twice."""
        digests, tars, offsets, sizes = array("q"), array("H"), array("Q"), array("Q")
        for number, name in enumerate(names):
            for found in scanned(folder, name, what):
                digests.frombytes(digests_of(found.names).tobytes())
                tars.extend(repeat(number, len(found.names)))
                offsets.frombytes(found.offsets.tobytes())
                sizes.frombytes(found.sizes.tobytes())
        equal = repeated(digests)
        if len(equal):
            members = ((member, name) for name in names for found in scanned(folder, name, what) for member in found.names)
            where = [(member, name) for member, name in members if digest(member) in equal]
            first, (there, *_) = where[0], [name for member, name in where[1:] if digest(member) == digest(where[0][0])]
            places, remedy = f"in {first[1]} and in {there}", "remove the superfluous tar"
            if there == first[1]:
                places, remedy = f"twice in {there}", "download that tar again, or write it anew"
            raise ValueError(f"{what}: {folder}: {first[0]} is {places}; {remedy}")
        keys = np.frombuffer(digests, np.int64)
        order = np.argsort(keys)
        self._digests = keys[order]
        self._locations: np.ndarray = np.empty(len(order), LOCATION)
        self._locations["tar"] = np.frombuffer(tars, np.uint16)[order]
        self._locations["offset"] = np.frombuffer(offsets, np.uint64)[order]
        self._locations["size"] = np.frombuffer(sizes, np.uint64)[order]

    def of(self, names: Sequence[str]) -> np.ndarray:
        """Locations of the members of these names, LOCATION [n]; zeros where there is none."""
        found = np.zeros(len(names), LOCATION)
        if len(self._digests):
            wanted = digests_of(names)
            rows = np.searchsorted(self._digests, wanted).clip(max=len(self._digests) - 1)
            there = self._digests[rows] == wanted
            found[there] = self._locations[rows[there]]
        return found


def packed(locations: np.ndarray) -> str:
    """Locations as text, ``LOCATION_SIGNS`` characters each; the same everywhere."""
    return base64.b64encode(locations.tobytes()).decode()


def unpacked(text: str, first: int, count: int) -> np.ndarray:
    """Some of the locations that :func:`packed` was given, LOCATION [count]; nothing else is decoded."""
    return np.frombuffer(base64.b64decode(text[first * LOCATION_SIGNS : (first + count) * LOCATION_SIGNS]), LOCATION)


def scanned(folder: str, name: str, what: str) -> Iterator[tar.Members]:
    """Members of a tar. Raises ``ValueError`` when it was cut short or is damaged."""
    try:
        with opened(f"{folder}/{name}") as file:
            yield from tar.scan_whole(file)
    except tar.Damaged as error:
        raise ValueError(f"{what}: {folder}/{name} {error}; download it again, or write it anew") from None
