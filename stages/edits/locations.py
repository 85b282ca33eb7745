"""Reading a delivered data set wherever it lies (a folder or a URL), with errors that say what to do."""

from __future__ import annotations

import errno
from typing import Any

from stages import storage

_ABSENT = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}


def listing(folder: str, *, what: str) -> dict[str, int | None]:
    """Sizes in bytes of the files in a folder by name. Raises ``ValueError`` naming it when it cannot be listed."""
    filesystem, path = storage.locate(folder)
    try:
        entries: list[dict[str, Any]] = filesystem.ls(path, detail=True)
    except FileNotFoundError:
        raise ValueError(f"{what}: there is no folder {folder}; correct the path or download the data set") from None
    except NotADirectoryError:
        raise ValueError(f"{what}: {folder} is not a folder") from None
    except PermissionError:
        raise ValueError(f"{what}: folder {folder} may not be read by this user; change its permissions") from None
    return {entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry["size"] for entry in entries if entry["type"] == "file"}


def sizes(paths: list[str]) -> dict[str, int | None]:
    """Sizes in bytes by path, None where they are not known; every folder is listed once, and web servers are not asked."""
    folders: dict[str, dict[str, int | None]] = {}
    for folder in {path.rpartition("/")[0] for path in paths}:
        try:
            folders[folder] = {} if folder.startswith(("http://", "https://")) else listing(folder or "/", what="")
        except ValueError:
            folders[folder] = {}
    return {path: folders[path.rpartition("/")[0]].get(path.rpartition("/")[2]) for path in paths}


def join(folder: str, name: str) -> str:
    """A path named in a data set that lies in ``folder``; absolute paths and URLs stay as they are."""
    return name if "://" in name or name.startswith("/") else f"{folder}/{name}"


def is_row_fault(error: OSError | ValueError) -> bool:
    """Whether a failed read is the row's fault (no such file, not allowed, impossible name) rather than the disk's or the network's."""
    if isinstance(error, (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)):
        return True
    return error.errno in _ABSENT
