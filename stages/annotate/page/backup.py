"""Backups of the rating page: the database and the roster, copied while people work, and put back.

A backup is a folder named by its time (UTC) with ``submissions.sqlite``, which needs no write-ahead log, and ``roster.json``, readable by
its owner only. It is copied by SQLite's own backup, so that it contains every submission that was confirmed before.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stages.annotate.formats.page_database import require_log, unusable
from stages.annotate.page import server_lock
from stages.annotate.page.database import DATABASE
from stages.annotate.page.roster import BEFORE_RESTORE, ROSTER, folder_of, make_private
from stages.engine import storage
from stages.engine.rundir import RunDir


@dataclass(frozen=True)
class Backup:
    """submissions: their number; latest: time of the newest one, empty for none; aside: where a restore put what was there before."""

    folder: Path
    submissions: int
    latest: str
    aside: Path | None = None


def write(run: RunDir, backups: Path) -> Backup:
    """Make a backup in the folder ``backups``. Raises ``ValueError`` when there is no complete database."""
    page = folder_of(run)
    if not (page / DATABASE).exists():
        raise ValueError(f"there are no submissions in {page}; `pipeline annotate serve` makes them")
    require_log(page / DATABASE)
    _checked(page / DATABASE, "restore it from a backup")
    if backups.is_file():
        raise ValueError(f"{backups} is a file; give a folder for the backups")
    if not backups.exists():
        make_private(backups)
    folder = backups / _time()
    partial = storage.partial_folder(folder)
    try:
        submissions, latest = _copied(page, partial, "make the backup again")
        storage.replace_folder(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Backup(folder, submissions, latest)


def restore(run: RunDir, backup: Path) -> Backup:
    """Put a backup back; what was there is moved aside, nothing is deleted.

    Raises ``ValueError`` while a server runs, for a folder that is no backup or the page's own, and for a damaged database.
    """
    page = folder_of(run)
    if backup.resolve() == page.resolve():
        raise ValueError(f"{backup} is the page's own folder; give a folder that `pipeline annotate backup` made")
    if not (backup / DATABASE).is_file():
        raise ValueError(f"{backup} is not a backup: it has no {DATABASE}; give a folder that `pipeline annotate backup` made")
    require_log(backup / DATABASE)
    _checked(backup / DATABASE, "use another backup")
    make_private(page)
    with server_lock.held(page):
        aside = page / f"{BEFORE_RESTORE}{_time()}"
        partial = storage.partial_folder(aside)  # what is there stays until the copy is whole
        try:
            submissions, latest = _copied(backup, partial, "use another backup")
            restored = sorted(partial.iterdir())
            names = {path.name for path in restored}
            moved = [path for path in sorted(page.iterdir()) if path.name.startswith(DATABASE) or path.name in names]
            if moved:
                make_private(aside)
            for path in moved:
                path.rename(aside / path.name)
            for path in restored:
                path.rename(page / path.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Backup(backup, submissions, latest, aside if moved else None)


def _copied(source: Path, target: Path, remedy: str) -> tuple[int, str]:
    """Copy database and roster into a folder; returns how many submissions there are, and the time of the latest."""
    make_private(target)
    _copy_database(source / DATABASE, target / DATABASE)
    if (source / ROSTER).exists():
        _copy(source / ROSTER, target / ROSTER)
    return _checked(target / DATABASE, remedy)


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database with what is in its write-ahead log; the copy has none."""
    target.touch(mode=0o600)
    try:
        with closing(_reading(source)) as old, closing(sqlite3.connect(target, isolation_level=None)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as error:
        raise unusable(target, error, f"{source} cannot be copied to {target} ({error}); see to the disk, and copy again") from None


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _checked(path: Path, remedy: str) -> tuple[int, str]:
    """Number of submissions and time of the newest one. Raises ``ValueError``, which ends with the ``remedy``, for a damaged database."""
    try:
        with closing(_reading(path)) as connection:
            (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if state == "ok":
                return connection.execute("SELECT count(*), coalesce(max(submitted_at), '') FROM submissions").fetchone()
    except sqlite3.DatabaseError as error:
        raise unusable(path, error, f"{path} is damaged ({' '.join(str(error).split())}); {remedy}") from None
    raise ValueError(f"{path} is damaged ({' '.join(state.split())}); {remedy}")


def _copy(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    shutil.copyfile(source, target)


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")
