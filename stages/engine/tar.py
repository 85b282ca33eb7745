"""Plain tar archives: writing gives the same bytes on every machine, and reading says where an archive is damaged."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple

import numpy as np

BLOCK = 512
END = bytes(2 * BLOCK)
"""An archive ends with two zero blocks."""
_CHUNK = 1 << 20
_RUN = 512
"""Reads before what they found is checked together, where headers are far from each other."""
_NEAR = 1 << 13
"""Bytes between headers up to which what lies between them is read with them."""
_MANY, _FEW = 1 << 20, 3 * BLOCK
"""Bytes read at a time where headers are near each other, and elsewhere: a header, and the next where a short text is between them."""


class Damaged(ValueError):
    """An archive is damaged; the message continues a sentence that begins with its name."""


class Member(NamedTuple):
    """A file in an archive; ``offset`` is where its first byte is."""

    name: str
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Where the next header begins."""
        return self.offset + self.size + -self.size % BLOCK


def header(name: str, size: int) -> bytes:
    """USTAR header of a file without owner, modified at time 0."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


_FIELDS = np.r_[100:157, 329:346]
"""Bytes of a header that are mode, owner, group, size, time, checksum, type, devices, and the first of the prefix."""
_ABSENT = ~np.isin(_FIELDS, np.r_[124:135, 148:157])
"""Which of them may be zero."""
_SAMPLE = np.frombuffer(header("", 0), np.uint8)
_BITS = np.zeros(BLOCK, np.uint8)
_BITS[_FIELDS] = np.where(_SAMPLE & 0xDF, 0xF8, 0xDF)[_FIELDS]
_BITS[[156, 345]] = 0xFF
"""Bits that are the same in all headers of regular files without a prefix: numbers are octal digits that a zero or a blank ends."""
_WORDS = np.flatnonzero(_BITS.view(np.uint64))
_WORD_BITS, _WORD_SAMPLE = _BITS.view(np.uint64)[_WORDS], (_BITS & _SAMPLE).view(np.uint64)[_WORDS]
"""The same, eight bytes at a time."""
_SIZE, _NEXT_SIZE = slice(124, 135), slice(2 * BLOCK + 124, 2 * BLOCK + 135)
"""Where a header says how long the file is, and where the next does if there is one block between them."""
_OCTAL = 8 ** np.arange(10, -1, -1)
_SUM = np.append(1 + _OCTAL[-6:], [1, 1])
_LEFT = _SAMPLE.sum() - _SAMPLE[148:156] @ _SUM
"""What is left of the sum of all bytes without the checksum's bytes times ``_SUM``, in all headers whose checksum is right."""


def padding(size: int) -> bytes:
    """Zeros that fill the last block of a member."""
    return bytes(-size % BLOCK)


class Members(NamedTuple):
    """Regular files that follow each other in an archive: names, where their headers begin, offsets of their first bytes, sizes."""

    names: list[str]
    begins: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray


def scan(file: BinaryIO) -> Iterator[Member]:
    """Regular files of any uncompressed tar archive, found by seeking from header to header, from the file's position on.

    Raises :class:`Damaged` when the archive does not end as an archive does: readers take a truncated archive for complete. So it does for
    a sparse file, whose bytes do not lie together.
    """
    for found in _found(file, None):
        yield from map(Member, found.names, found.offsets.tolist(), found.sizes.tolist())


def scan_whole(file: BinaryIO) -> Iterator[Members]:
    """The same to the archive's end, many at a time: plain headers of a local archive take a tenth of the time of :func:`scan`."""
    try:
        descriptor = file.fileno()
    except (AttributeError, io.UnsupportedOperation):  # of a server's file, or of bytes in memory
        descriptor = None
    return _found(file, descriptor)


def _found(file: BinaryIO, descriptor: int | None) -> Iterator[Members]:
    """Members, those with plain headers together where there is a ``descriptor`` to read the headers from."""
    end = file.tell()
    length = file.seek(0, io.SEEK_END)
    file.seek(end)
    distance = _NEAR
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # ty: ignore[missing-attribute]  # otherwise every header stays in memory
                if info.size < 0:
                    raise tarfile.ReadError("a size is negative")
                if archive.offset > length:  # where a size is damaged, further than any file reaches
                    raise tarfile.ReadError("unexpected end of data")
                if info.issparse():
                    raise Damaged(f"has the sparse file {info.name} (of tar's --sparse), which is not read here")
                if info.isreg():
                    yield Members([info.name.removeprefix("./")], *np.array([[end], [info.offset_data], [info.size]]))
                    end = archive.offset
                while descriptor is not None and not archive.pax_headers:
                    read = _together if distance < _NEAR else _one_by_one
                    found = _plain(*read(descriptor, archive.offset), archive.offset, length)
                    if not found.names:
                        descriptor = None  # tarfile reads on: the end, another writer, or damage
                        break
                    found.begins[0] = end
                    yield found
                    archive.offset = end = Member("", int(found.offsets[-1]), int(found.sizes[-1])).end
                    distance = (_MANY if read is _together else end - found.offsets[0]) / len(found.names)
    except Damaged:
        raise
    except (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError) as error:  # the last three of sizes that no memory has
        raise Damaged(f"is not a whole tar archive ({error})") from None
    end = archive.offset
    file.seek(end)
    block = file.read(BLOCK)
    if not block:
        raise Damaged(f"was cut short at byte {end}")
    if block.strip(b"\0"):
        raise Damaged(f"has a damaged header at byte {end}")
    while block := file.read(_CHUNK):
        if block.strip(b"\0"):
            raise Damaged(f"goes on after its end at byte {end}: a header is damaged, or it is several archives one after the other")


def _together(descriptor: int, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks that look like headers among those from the byte ``at`` on, uint8 [n, 512], and where they begin, int64 [n]."""
    data = os.pread(descriptor, _MANY, at)
    blocks = np.frombuffer(data, np.uint8, len(data) // BLOCK * BLOCK).reshape(-1, BLOCK)
    places = np.flatnonzero(blocks.view("<u4")[:, 64] >> 8 == int.from_bytes(b"ust", "little"))
    return blocks[places], at + BLOCK * places


def _one_by_one(descriptor: int, at: int) -> tuple[np.ndarray, np.ndarray]:
    """The same, read by seeking from header to header."""
    chunks, places, begin, pread = list[bytes](), list[int](), at, os.pread
    with suppress(ValueError, OSError):  # of a size that is not octal, and after one that is negative
        for place in range(0, 3 * _RUN, 3):
            if len(chunk := pread(descriptor, _FEW, at)) < _FEW:  # as after the last member
                break
            step = int(chunk[_SIZE], 8) + 2 * BLOCK - 1 & -BLOCK
            chunks.append(chunk)
            places.append(place)
            at += step
            if step == 2 * BLOCK:
                at += int(chunk[_NEXT_SIZE], 8) + 2 * BLOCK - 1 & -BLOCK
                places.append(place + 2)
    blocks = np.frombuffer(b"".join(chunks), np.uint8).reshape(-1, BLOCK).take(places, 0)
    return blocks, np.cumsum(np.append(begin, _steps(_sizes(blocks))))[:-1]


def _plain(headers: np.ndarray, begins: np.ndarray, at: int, length: int) -> Members:
    """Members that follow each other from the byte ``at`` on, up to the first header that is not of a regular file, has a prefix of its
    name, numbers that are not octal, or a wrong checksum, or whose file goes beyond the ``length`` of the archive."""
    formed = (headers.view(np.uint64)[:, _WORDS] & _WORD_BITS == _WORD_SAMPLE).all(1)
    if not formed.all():  # where a number is absent, as of owners in some archives
        fields = headers[:, _FIELDS]
        formed = ((fields & _BITS[_FIELDS] == (_SAMPLE & _BITS)[_FIELDS]) | (fields == 0) & _ABSENT).all(1)
    summed = headers.sum(1, dtype=np.int32) - headers[:, 148:156] @ _SUM == _LEFT
    sizes = _sizes(headers)
    ends = begins + _steps(sizes)
    plain = formed & summed & (begins == np.append(at, ends[:-1])) & (ends <= length)
    count = len(plain) if plain.all() else int(plain.argmin())
    names: list[bytes] = headers[:count, :100].copy().view("S100")[:, 0].tolist()
    joined = b"\0".join(names)
    if joined.count(b"\0") >= len(names):  # something follows the zero that ends a name
        joined = b"\0".join(name.partition(b"\0")[0] for name in names)
    text = f"\0{joined.decode(errors='surrogateescape')}".replace("\0./", "\0")
    return Members(text.split("\0")[1 : count + 1], begins[:count], begins[:count] + BLOCK, sizes[:count])


def _sizes(headers: np.ndarray) -> np.ndarray:
    """Sizes of the files with these headers, uint8 [n, 512], if they are octal numbers, int64 [n]."""
    return headers[:, _SIZE] @ _OCTAL - ord("0") * _OCTAL.sum()


def _steps(sizes: np.ndarray) -> np.ndarray:
    """Bytes from the beginning of a header to that of the next, int64 [n]."""
    return sizes + 2 * BLOCK - 1 & -BLOCK


def read(file: BinaryIO) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """Members of an archive written with :func:`header`, read front to back; consume a member's blocks before the next one.

    Raises :class:`Damaged` with the place of the damage.
    """
    offset = 0
    while True:
        block = file.read(BLOCK)
        if block == bytes(BLOCK):
            if file.read(BLOCK) != bytes(BLOCK) or file.read(1):
                raise Damaged(f"does not end as an archive does at byte {offset}")
            return
        if len(block) < BLOCK:
            raise Damaged(f"was cut short at byte {offset + len(block)}, between members")
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise Damaged(f"has a damaged header at byte {offset} ({error}); nothing after it was checked") from None
        offset += BLOCK
        member = Member(info.name, offset, info.size)
        yield member, _blocks(file, member)
        offset += info.size + len(padding(info.size))


def _blocks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    left = member.size
    while left:
        block = file.read(min(left, _CHUNK))
        if not block:
            break
        left -= len(block)
        yield block
    pad = b"" if left else file.read(len(padding(member.size)))
    if left or len(pad) < len(padding(member.size)):
        raise Damaged(f"was cut short at byte {member.offset + member.size - left + len(pad)}, inside {member.name}")
    if pad.strip(b"\0"):
        raise Damaged(f"has bytes other than zero after {member.name} at byte {member.offset + member.size}")
