"""Whether the compressed data of a JPEG file end where its picture does.

JPEG has no checksum. A decoder that loses its place in damaged data goes on with wrong values; libjpeg only warns, and Pillow does not pass
that on. But such a decoder seldom needs exactly the data that are there: it reaches the end too early, and libjpeg fills the rest of the
picture; or it has data left. So other bytes are put behind the data of every scan: if pixels change, data were missing. And the last bytes
of the only scan are replaced: if no pixel changes, they were not needed. Damage after which the number of blocks is right is a valid file,
and nobody can see it there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from PIL import Image

from reward.inputs.sample import ImageError

_MARKER = re.compile(rb"\xff[^\x00]")
_FILLER = bytes((37 * place + 11) % 251 for place in range(4096))
"""Data that no encoder writes, without the byte that begins a marker."""
_PATTERNS = (0x00, 0xFE, 0x55, 0xAA, 0x33, 0xCC, 0x49, 0x92, 0x24, 0x0F, 0xF0)
_TAILS = ((2, _FILLER), (3, _FILLER[::-1]), *((3, bytes([pattern]) * 256) for pattern in _PATTERNS))
"""How many bytes at the end of the only scan are replaced, and by what. With tables of their own, grey and plain blocks take so few bits
that many data mean the same; most sound files need the first of these only."""
_MOST_REPLACED = max(count for count, _ in _TAILS)
_START_OF_SCAN, _END, _HUFFMAN_FRAMES = 0xDA, 0xD9, (0xC0, 0xC1, 0xC2)
_RESTARTS = range(0xD0, 0xD8)


def fault(data: bytes, picture: Image.Image, decode: Callable[[bytes], Image.Image]) -> str | None:
    """What is wrong with the scans of a JPEG file that decodes to ``picture``; None for a sound one, and for other kinds of files.

    Takes two more decodings of a sound file. Only Huffman-coded frames (baseline, extended, progressive) are examined.
    """
    found = _scans(data)
    if not found:
        return None
    longer, end = [], 0
    for _, stop in found:
        longer += [data[end:stop], _FILLER]
        end = stop
    pixels = picture.tobytes()
    if not _shows(pixels, b"".join([*longer, data[end:]]), decode):
        return "data of its compressed scan are missing"
    begin, end = found[0]
    if len(found) > 1 or end - begin <= _MOST_REPLACED:
        return None
    count, filler = _TAILS[0]
    if not _shows(pixels, data[: end - count] + filler + data[end:], decode):
        return None
    data = _with_whole_blocks(data)
    pixels = decode(data).tobytes()
    if all(_shows(pixels, data[: end - count] + filler + data[end:], decode) for count, filler in _TAILS):
        return "its compressed scan has more data than its picture needs"
    return None


def _with_whole_blocks(data: bytes) -> bytes:
    """The same file with a picture so large that every block of its only scan shows: the last ones may be beyond its edges."""
    place = 2
    while data[place + 1] not in _HUFFMAN_FRAMES:
        place += 1 if data[place + 1] == 0xFF else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    size = place + 5  # after the marker, the length and the precision: height, width, components with their sampling factors
    components = data[size + 4]
    factors = [data[size + 6 + 3 * number] for number in range(components)] if components > 1 else [0x11]
    wholes = (8 * max(factor & 15 for factor in factors), 8 * max(factor >> 4 for factor in factors))
    sides = [int.from_bytes(data[at : at + 2], "big") for at in (size, size + 2)]
    larger = [min(-(-side // whole) * whole, 0xFFFF) for side, whole in zip(sides, wholes, strict=True)]
    return data[:size] + b"".join(side.to_bytes(2, "big") for side in larger) + data[size + 4 :]


def _shows(pixels: bytes, data: bytes, decode: Callable[[bytes], Image.Image]) -> bool:
    try:
        return decode(data).tobytes() == pixels
    except ImageError:
        return False


def _scans(data: bytes) -> list[tuple[int, int]]:
    """First byte of compressed data and the byte after them, of every scan and of every part between restart markers; none where the file
    is no JPEG of a kind that is examined."""
    found: list[tuple[int, int]] = []
    place, examined = 2, False
    while data.startswith(b"\xff\xd8\xff") and place + 4 <= len(data) and data[place] == 0xFF and data[place + 1] != _END:
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
            continue
        examined = examined or marker in _HUFFMAN_FRAMES
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        while marker == _START_OF_SCAN:
            stop = _MARKER.search(data, place)
            if stop is None:
                return []  # cut short, which the decoder refuses
            found.append((place, stop.start()))
            place = stop.start()
            if data[place + 1] not in _RESTARTS:
                break
            place += 2
    return found if examined else []
