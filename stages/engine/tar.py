"""Plain tar archives: writing gives the same bytes on every machine, and reading says where an archive is damaged."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 512
END = bytes(2 * BLOCK)
"""An archive ends with two zero blocks."""
_CHUNK = 1 << 20


class Damaged(ValueError):
    """An archive is damaged; the message continues a sentence that begins with its name."""


@dataclass(frozen=True)
class Member:
    """A file in an archive; ``offset`` is where its first byte is."""

    name: str
    offset: int
    size: int


def header(name: str, size: int) -> bytes:
    """USTAR header of a file without owner, modified at time 0."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """Zeros that fill the last block of a member."""
    return bytes(-size % BLOCK)


def scan(file: BinaryIO) -> Iterator[Member]:
    """Regular files of any uncompressed tar archive, found by seeking from header to header.

    Raises :class:`Damaged` when it does not end as an archive does: readers take a truncated archive for complete.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # ty: ignore[missing-attribute]  # otherwise every header stays in memory
                if info.isreg():
                    yield Member(info.name.removeprefix("./"), info.offset_data, info.size)
            end = archive.offset
    except (tarfile.TarError, EOFError) as error:
        raise Damaged(f"is not a whole tar archive ({error})") from None
    file.seek(end)
    block = file.read(BLOCK)
    if not block:
        raise Damaged(f"was cut short at byte {end}")
    if block.strip(b"\0"):
        raise Damaged(f"has a damaged header at byte {end}")


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
