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


def scan(file: BinaryIO, *, whole: bool = False) -> Iterator[Member]:
    """Regular files of any uncompressed tar archive, found by seeking from header to header, from the file's position on.

    ``whole``: to the end, so that headers may be read ahead; those of a local archive then take a sixth of the time where they are plain.
    Raises :class:`Damaged` when the archive does not end as an archive does: readers take a truncated archive for complete.
    """
    descriptor = _descriptor(file) if whole else None
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # ty: ignore[missing-attribute]  # otherwise every header stays in memory
                if info.isreg():
                    yield Member(info.name.removeprefix("./"), info.offset_data, info.size)
                while descriptor is not None and not archive.pax_headers:
                    blocks, places = _headers(descriptor, archive.offset)
                    names = _names(blocks)
                    if len(names) < len(blocks):
                        descriptor = None  # tarfile reads on: another writer, or damage
                    if not names:
                        break
                    members = [Member(name, *place) for name, place in zip(names, places, strict=False)]
                    yield from members
                    archive.offset = members[-1].end
            end = archive.offset
    except (tarfile.TarError, EOFError) as error:
        raise Damaged(f"is not a whole tar archive ({error})") from None
    file.seek(end)
    block = file.read(BLOCK)
    if not block:
        raise Damaged(f"was cut short at byte {end}")
    if block.strip(b"\0"):
        raise Damaged(f"has a damaged header at byte {end}")


def _descriptor(file: BinaryIO) -> int | None:
    try:
        return file.fileno()
    except (AttributeError, io.UnsupportedOperation):  # of a server's file, or of bytes in memory
        return None


def _headers(descriptor: int, at: int) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Headers of regular files without a prefix of their names, from the byte ``at`` on, and offset and size of the files."""
    blocks, places = list[bytes](), list[tuple[int, int]]()
    while len(blocks) < _RUN:
        block = os.pread(descriptor, BLOCK, at)
        if len(block) < BLOCK or block[156:157] != tarfile.REGTYPE or block[345] or not block[124:135].isdigit():
            break
        try:
            size = int(block[124:135], 8)
        except ValueError:  # not octal
            break
        blocks.append(block)
        places.append((at + BLOCK, size))
        at += BLOCK + size + -size % BLOCK
    return blocks, places


def _names(blocks: Sequence[bytes]) -> list[str]:
    """Names in headers, up to the first with numbers that are not octal, or with a wrong checksum."""
    headers = np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, BLOCK)
    numbers, stored = headers[:, _NUMBERS], headers[:, 148:154]
    octal = (numbers & 0xF8 == ord("0")) | (numbers == 0) | ((numbers == ord(" ")) & _LAST)
    ended = headers[:, [135, 154, 155]] & 0xDF == 0  # by a zero or a blank
    total = headers.sum(1, dtype=np.uint32) - headers[:, 148:156].sum(1, dtype=np.uint32) + 8 * ord(" ")
    equal = (stored & 0xF8 == ord("0")).all(1) & ((stored - ord("0")) @ _POWERS == total)
    plain = octal.all(1) & ended.all(1) & equal
    count = len(plain) if plain.all() else int(plain.argmin())
    names: list[bytes] = headers[:count, :100].copy().view("S100")[:, 0].tolist()
    return [name.partition(b"\0")[0].decode(errors="surrogateescape").removeprefix("./") for name in names]


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
