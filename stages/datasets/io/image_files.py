"""Image files that rows name: read from anywhere, and what is the row's fault told apart from what is the disk's or the network's.

A row's fault costs the row. Anything else (a refused connection, a server's error, a disk that fails) is tried again, a little later each
time, and then ends the unit with a sentence: the next run goes on with that unit. A host without an address is the row's fault while
another host has one, and the network's otherwise. Missing credentials cost the row as a missing extra does. Nothing but regular files is
opened, and no file above ``MOST_BYTES`` is read.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from stages.datasets.io.faults import Fault
from stages.engine import storage

T = TypeVar("T")

MOST_BYTES = 512 << 20
"""The largest image file that is read: as many bytes as the pixels of the largest picture that Pillow's limit against decompression bombs
allows, uncompressed."""
WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try."""
_ABSENT = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
_BUSY = (408, 425, 429)
"""HTTP codes below 500 that a later request may not get."""
PUBLIC_HOSTS = ("huggingface.co", "github.com")
"""Asked for an address before any image came from a host with a name."""
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"}
_NOT_CONNECTED = {"ConnectionError", "TimeoutError", "ClientConnectionError", "HTTPClientError"}
"""Errors by name, also of botocore and aiohttp, which are imported with the first such URL only."""
_NAMED_HOST = re.compile(r"(?:https?|ftp)://(?:[^/@]*@)?([^/:?#]*\.[^\W\d][^/:?#]*)")
"""In a URL, the host where it is no number."""
_host_of_newest: deque[str] = deque(maxlen=1)
"""Of the image that this process read last from such a URL."""


def read(path: str, what: str) -> bytes | Fault:
    """Content of an image file, or the row's fault; ``what`` begins the message, as in "the source image a.png".

    Raises ``OSError`` with a sentence when disk or network fail every time.
    """
    return patiently(lambda: _read(path, what), path, what)


def patiently(attempt: Callable[[], T], path: str, what: str) -> T | Fault:
    """What ``attempt`` returns, or the row's fault that it raised; other failures are tried again."""
    for wait in (*WAITS, None):
        try:
            return _archive_fault(path, what) or attempt()
        except Exception as error:  # of any library behind fsspec
            fault = fault_of(error, path, what, last=wait is None)
            if fault is not None:
                return fault
            if wait is None:
                cause = _chain(error)[-1]  # fsspec's own error may say nothing but the URL
                detail = str(cause) or type(cause).__name__
                tries = f"{len(WAITS) + 1} tries in {sum(WAITS):g} seconds"
                raise OSError(f"{what} ({path}) could not be read in {tries} ({detail}); see to disk or network and run again") from error
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and its causes: fsspec says "file not found" of a refused connection too, with the connection's error as the cause."""
    chain, cause = list[BaseException](), error
    while cause is not None:
        chain.append(cause)
        cause = cause.__context__ if type(cause).__module__.startswith("requests.") else cause.__cause__  # requests names no cause
    return chain


def fault_of(error: BaseException, path: str, what: str, *, last: bool) -> Fault | None:
    """The row's fault that a failed read shows; None where it is the disk's or the network's. ``last``: it is not tried again."""
    chain = _chain(error)
    absent = Fault("missing-image", f"{what} cannot be read ({type(error).__name__})")
    if any(isinstance(entry, storage.UnknownLocation) or getattr(entry, "errno", None) == errno.EPROTONOSUPPORT for entry in chain):
        return Fault("unknown-location", f"{what}: {error}")
    if any(type(entry).__name__ in _NO_CREDENTIALS for entry in chain):
        return Fault("unknown-location", f"{what}: this machine has no credentials for it ({chain[-1]})")
    if any(type(entry).__name__ == "TooManyRedirects" for entry in chain):  # of aiohttp
        return absent
    nameless = next((entry for entry in chain if isinstance(entry, socket.gaierror)), None)
    final = nameless is not None and (last or nameless.errno != socket.EAI_AGAIN)
    if final and re.search("(https?|ftp|github)://", path) and _hosts_are_found():
        return Fault("unknown-host", f"{what}: its host has no address ({nameless.strerror})")
    codes = [code for entry in chain for name in ("status", "code") if isinstance(code := getattr(entry, name, None), int)]
    if codes:
        return absent if 400 <= codes[0] < 500 and codes[0] not in _BUSY else None
    if any(map(_is_transient, chain)):
        return None
    if any(isinstance(entry, (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)) for entry in chain):
        return absent
    if "::" in path:  # a member of an archive: zipfile, tarfile and the decompressors have errors of their own
        return Fault("broken-archive", f"{what} cannot be read from its archive ({type(error).__name__}: {error})")
    forbidden = str(error).startswith("Forbidden: ")  # of gs://, without a number
    return absent if forbidden or isinstance(error, ValueError) or getattr(error, "errno", None) in _ABSENT else None


def _hosts_are_found() -> bool:
    """Whether any host has an address at this moment."""
    for host in (*_host_of_newest, *PUBLIC_HOSTS):
        with suppress(OSError):
            return bool(socket.getaddrinfo(host, None))
    return False


def _is_transient(error: BaseException) -> bool:
    if not _NOT_CONNECTED.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        return True
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _ABSENT


def _archive_fault(path: str, what: str) -> Fault | None:
    """The fault of a URL of an archive that a local file has, which is none or is empty, before anything opens it."""
    links = path.split("::")
    for first in reversed(range(1, len(links))):  # an archive in another one can be looked at after that one only
        name = _local_name(*storage.locate("::".join(links[first:])))
        if name is None:
            continue
        found = Path(name).stat()
        if stat.S_ISREG(found.st_mode) and not found.st_size:
            return Fault("broken-archive", f"{what} cannot be read from its archive, which is empty")
        if (fault := _no_file(found, what)) is not None:
            return fault
    return None


def _local_name(filesystem: Any, name: str) -> str | None:
    """Path of a local file, also one in a folder that is a file system of its own (``dir://``), or behind a cache; None for others."""
    while (inner := getattr(filesystem, "fs", None)) is not None:
        name = f"{filesystem.path}/{name}" if isinstance(filesystem, DirFileSystem) else name
        filesystem = inner
    return name if isinstance(filesystem, LocalFileSystem) else None


def _no_file(found: os.stat_result, what: str) -> Fault | None:
    """The fault of what opening may wait for without end."""
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return None
    return Fault("not-a-file", f"{what} is no regular file, but a pipe, a device or a socket")


def _read(path: str, what: str) -> bytes | Fault:
    filesystem, name = storage.locate(path)
    local = _local_name(filesystem, name)
    if local is not None:
        found = os.stat(local)  # noqa: PTH116  # a Path would intern every name
        fault = _no_file(found, what) or too_large(found.st_size, what)
        # What is empty is not read: the kernel's files, such as /proc/kmsg, have 0 bytes and may be without end
        return fault or (Path(local).read_bytes() if found.st_size or stat.S_ISDIR(found.st_mode) else b"")
    with filesystem.open(name, "rb") as file:
        size = getattr(file, "size", None)
        data = b"" if size and size > MOST_BYTES else file.read(MOST_BYTES + 1)  # the size may be unknown, or that of packed data
    _host_of_newest.extend(_NAMED_HOST.findall(path))
    return too_large(max(size or 0, len(data)), what) or data


def too_large(size: int, what: str) -> Fault | None:
    """The fault of an image of so many bytes, if any."""
    if size <= MOST_BYTES:
        return None
    return Fault("too-large", f"{what} has more than {MOST_BYTES >> 20} MiB")
