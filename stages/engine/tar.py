"""Plain tar archives: writing gives the same bytes on every machine, and reading says where an archive is damaged."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

BLOCK = 512
END = bytes(2 * BLOCK)
"""An archive ends with two zero blocks."""
_CHUNK = 1 << 20
_RUN = 256
"""Headers that are read before they are checked together."""
_NEAR = 1 << 13
"""Bytes between headers up to which what lies between them is read with them."""
_MANY, _ONE = 1 << 16, 1 << 11
"""Bytes read at a time where headers are near each other, and elsewhere: a header, and the next where a short text is between them."""
_NUMBERS = np.r_[100:148, 329:345]
"""Bytes of a header that are mode, owner, group, size, time and devices."""
_LAST = np.isin(_NUMBERS, (107, 115, 123, 135, 147, 336, 344))
_POWERS = 8 ** np.arange(5, -1, -1)


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


def padding(size: int) -> bytes:
    """Zeros that fill the last block of a member."""
    return bytes(-size % BLOCK)


class Members(NamedTuple):
    """Regular files that follow each other in an archive: names, where their headers begin, offsets of their first bytes, sizes."""

    names: list[str]
    begins: list[int]
    offsets: list[int]
    sizes: list[int]


def scan(file: BinaryIO) -> Iterator[Member]:
    """Regular files of any uncompressed tar archive, found by seeking from header to header, from the file's position on.

    Raises :class:`Damaged` when the archive does not end as an archive does: readers take a truncated archive for complete.
    """
    for found in _found(file, None):
        yield from map(Member, found.names, found.offsets, found.sizes)


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
                if info.isreg():
                    yield Members([info.name.removeprefix("./")], [end], [info.offset_data], [info.size])
                    end = archive.offset
                while descriptor is not None and not archive.pax_headers:
                    blocks, begins, sizes = _headers(descriptor, archive.offset, length, _MANY if distance < _NEAR else _ONE)
                    names = _names(blocks)
                    count = len(names)
                    if count < len(blocks):
                        descriptor = None  # tarfile reads on: another writer, or damage
                    if not names:
                        break
                    offsets = [begin + BLOCK for begin in begins[:count]]
                    yield Members(names, [end, *begins[1:count]], offsets, sizes[:count])
                    archive.offset = end = Member("", offsets[-1], sizes[count - 1]).end
                    distance = (end - begins[0]) / count
    except (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError) as error:  # the last three of sizes that no memory has
        raise Damaged(f"is not a whole tar archive ({error})") from None
    end = archive.offset
    file.seek(end)
    block = file.read(BLOCK)
    if not block:
        raise Damaged(f"was cut short at byte {end}")
    if block.strip(b"\0"):
        raise Damaged(f"has a damaged header at byte {end}")


def _headers(descriptor: int, at: int, length: int, window: int) -> tuple[list[bytes], list[int], list[int]]:
    """Blocks from the byte ``at`` on that are headers if nothing is odd, where they begin, and the sizes they give, none of which goes
    beyond the ``length`` of the archive; ``window`` bytes are read at a time."""
    blocks, begins, sizes = list[bytes](), list[int](), list[int]()
    data, first = b"", at
    while len(blocks) < _RUN:
        place = at - first
        if place + BLOCK > len(data):
            data, first, place = os.pread(descriptor, window, at), at, 0
        block = data[place : place + BLOCK]
        digits = block[124:135]
        if not digits.isdigit() or len(block) < BLOCK:
            break
        try:
            size = int(digits, 8)
        except ValueError:  # not octal
            break
        begin, at = at, at + BLOCK + size + -size % BLOCK
        if at > length:
            break
        blocks.append(block)
        begins.append(begin)
        sizes.append(size)
    return blocks, begins, sizes


def _names(blocks: Sequence[bytes]) -> list[str]:
    """Names in headers of regular files, up to the first that is another's, has a prefix of its name, numbers that are not octal, or a
    wrong checksum."""
    headers = np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, BLOCK)
    numbers, stored = headers[:, _NUMBERS], headers[:, 148:154]
    octal = (numbers & 0xF8 == ord("0")) | (numbers == 0) | ((numbers == ord(" ")) & _LAST)
    ended = headers[:, [135, 154, 155]] & 0xDF == 0  # by a zero or a blank
    total = headers.sum(1, dtype=np.uint32) - headers[:, 148:156].sum(1, dtype=np.uint32) + 8 * ord(" ")
    equal = (stored & 0xF8 == ord("0")).all(1) & ((stored - ord("0")) @ _POWERS == total)
    plain = octal.all(1) & ended.all(1) & equal & (headers[:, 156] == ord("0")) & (headers[:, 345] == 0)
    count = len(plain) if plain.all() else int(plain.argmin())
    names: list[bytes] = headers[:count, :100].copy().view("S100")[:, 0].tolist()
    decoded = b"\0".join(names).decode(errors="surrogateescape").split("\0")
    if len(decoded) > count:  # something follows the zero that ends a name
        decoded = [name.partition(b"\0")[0].decode(errors="surrogateescape") for name in names]
    return [name.removeprefix("./") for name in decoded[:count]]


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
