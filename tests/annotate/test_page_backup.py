"""Backups of the rating page beside its server, copies that lack the write-ahead log, and what is put back."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import pipeline, refusal
from page_run import Client, exported, page_run, plan, roster, serving

from stages.annotate import step as annotate
from stages.annotate.formats import read as formats
from stages.annotate.page import backup as backups
from stages.annotate.page.database import Database
from stages.annotate.ratings import ledger
from stages.context import Context
from stages.engine.rundir import RunDir


def submissions(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [name for (name,) in connection.execute("SELECT submission_id FROM submissions ORDER BY rowid")]


def test_a_backup_beside_the_server_is_whole_private_and_can_be_restored(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=5, edits=2, plan=plan(overlap=0)))
    run, page = context.run.path, context.run.path / "annotate" / "page"
    (_, token), before = roster(context).add("Ada"), tmp_path / "copied.sqlite"
    assert "there are no submissions" in refusal("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
    with serving(context) as address:
        ada = Client(address, token)
        sent = [ada.submission(ada.get("/api/work")["groups"][0])]
        ada.ask("POST", "/api/submit", sent[0])
        said = pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "backups").output
        assert "(1 submissions, the newest of " in said
        for _ in range(2):
            sent.append(ada.submission(ada.get("/api/work")["groups"][0]))
            ada.ask("POST", "/api/submit", sent[-1])
        pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
        shutil.copy(page / "submissions.sqlite", before)  # as a file manager copies it: confirmed ratings are in the log
        assert not {entry["submission_id"] for entry in sent} & set(_of_copy(before))
        (tmp_path / "killed").mkdir()  # what a server that was killed leaves
        for file in (*page.glob("submissions.sqlite*"), page / "roster.json"):
            shutil.copy(file, tmp_path / "killed")
        files = [path for path in (*page.rglob("*"), *(tmp_path / "backups").rglob("*")) if path.name.startswith(("sub", "roster"))]
        assert {path.name for path in files} == {"submissions.sqlite", "submissions.sqlite-wal", "submissions.sqlite-shm", "roster.json"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in (page, *files))
        assert "another `pipeline annotate serve`" in refusal("annotate", "restore", "--run", run, "--from", _latest(tmp_path, 0))
    first, second = (_latest(tmp_path, n) for n in (0, 1))
    names = [entry["submission_id"] for entry in sent]
    assert submissions(first / "submissions.sqlite") == names[:1] and submissions(second / "submissions.sqlite") == names
    for file in (before, second / "submissions.sqlite"):
        if file is before:
            with pytest.raises(ValueError, match=r"copied\.sqlite lacks its write-ahead log copied\.sqlite-wal"):
                formats.read(file)
        else:
            assert annotate.ingest(context, [file]).index.counts["out"] == 3 * 2 * 2

    # the disk of the page is lost in part: the log is gone
    shutil.copy(before, page / "submissions.sqlite")
    with pytest.raises(ValueError, match="lacks its write-ahead log"), serving(context):
        pass
    assert "lacks its write-ahead log" in refusal("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
    roster(context).add("Ben")
    said = pipeline("annotate", "restore", "--run", run, "--from", second).output
    assert "(3 submissions" in said and submissions(page / "submissions.sqlite") == names
    (aside,) = page.glob("before-restore-*")
    assert (aside / "submissions.sqlite").read_bytes() == before.read_bytes() and "Ben" in (aside / "roster.json").read_text()
    assert [person.name for person in roster(context).people] == ["Ada"]
    with serving(context) as address:
        assert Client(address, token).get("/api/previous")["group_id"] == sent[-1]["group_id"]
        assert Client(address, token).ask("POST", "/api/submit", sent[-1]) == (200, {"revision": 1})

    assert _joined(context, "Cyd") == "annotator-03", "Ben had annotator-02, and may have rated"
    assert "(3 submissions" in pipeline("annotate", "restore", "--run", run, "--from", tmp_path / "killed").output
    assert sorted(_of_copy(page / "submissions.sqlite")) == sorted(names) and not (page / "submissions.sqlite-wal").exists()

    data = (second / "submissions.sqlite").read_bytes()
    (second / "submissions.sqlite").write_bytes(data[: len(data) // 2])
    assert "is damaged" in refusal("annotate", "restore", "--run", run, "--from", second)
    assert "is not a backup" in refusal("annotate", "restore", "--run", run, "--from", tmp_path)
    assert "is the page's own folder" in refusal("annotate", "restore", "--run", run, "--from", page)
    assert "is a file; give a folder" in refusal("annotate", "backup", "--run", run, "--to", before)
    assert submissions(page / "submissions.sqlite") == names

    (tmp_path / "shared").mkdir(mode=0o755)
    pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "shared")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755 and len([*(tmp_path / "shared").iterdir()]) == 1
    (page / "submissions.sqlite").write_bytes(data[: len(data) // 2])
    sentence = refusal("annotate", "backup", "--run", run, "--to", tmp_path / "shared")
    assert f"{page}/submissions.sqlite is damaged" in sentence and "restore it from a backup" in sentence and "\n" not in sentence.strip()
    assert len([*(tmp_path / "shared").iterdir()]) == 1
    (page / "submissions.sqlite").write_bytes(b"")
    with pytest.raises(ValueError, match=r"submissions\.sqlite is empty, so its submissions are lost; restore it"), serving(context):
        pass


def test_a_full_disk_and_a_lock_are_no_damage_and_cost_nothing(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=0)))
    run, page = context.run.path, context.run.path / "annotate" / "page"
    with serving(context) as address:
        ada = Client(address, roster(context).add("Ada")[1])
        ada.submit(ada.get("/api/work")["groups"][0], comment="x" * 4000)
    pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
    before = {path.name: path.read_bytes() for path in page.iterdir()}
    connect = sqlite3.connect

    def full(*given: Any, **settings: Any) -> sqlite3.Connection:
        """A database that is not only read may not grow beyond its first pages, as on a full disk."""
        connection = connect(*given, **settings)
        if not str(given[0]).endswith("?mode=ro"):
            connection.execute("PRAGMA max_page_count=1")
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", full)
        for call in (
            lambda: backups.restore(context.run, _latest(tmp_path, 0)),
            lambda: backups.write(context.run, tmp_path / "backups"),
        ):
            with pytest.raises(ValueError, match=r"the disk of .*submissions\.sqlite is full; make room and run the same command again"):
                call()
    assert {path.name: path.read_bytes() for path in page.iterdir()} == before and len([*(tmp_path / "backups").iterdir()]) == 1

    with closing(connect(page / "submissions.sqlite", isolation_level=None)) as holder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(connect, timeout=0.2))  # SQLite waits for five seconds
        holder.execute("BEGIN EXCLUSIVE")
        sentence = r"submissions\.sqlite is locked by another program; end that program and run the same command again"
        with pytest.raises(ValueError, match=sentence), serving(context):
            pass
        with pytest.raises(ValueError, match=sentence):
            formats.read(page / "submissions.sqlite")
        with pytest.raises(ValueError, match=sentence):
            backups.write(context.run, tmp_path / "backups")


def _joined(context: Context, name: str) -> str:
    return roster(context).add(name)[0].pseudonym


def _latest(folder: Path, number: int) -> Path:
    return sorted((folder / "backups").iterdir())[number]


def _of_copy(path: Path) -> list[str]:
    """What SQLite reads without complaint from a copied file."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        try:
            return [name for (name,) in connection.execute("SELECT submission_id FROM submissions")]
        except sqlite3.OperationalError:
            return []


def test_a_server_that_was_killed_loses_nothing_and_one_that_ends_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "submissions.sqlite"
    database = Database(path)
    with database.write() as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in tmp_path.glob("submissions.sqlite*"):
        shutil.copy(file, killed / file.name)
    database.close()
    assert [file.name for file in tmp_path.glob("submissions.sqlite*")] == ["submissions.sqlite"]
    for copy in (path, killed / "submissions.sqlite"):
        again = Database(copy)
        with again.read() as connection:
            assert [tuple(row) for row in connection.execute("SELECT * FROM meta")] == [("a", "b")]
        again.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_asked_to_end_leaves_one_file(tmp_path: Path, number: signal.Signals) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=0)))
    _, token = roster(context).add("Ada")
    given = ["--run", context.run.path, "--config", "demo", "annotate.serve.port=0"]
    command = [Path(sys.executable).with_name("pipeline"), "annotate", "serve", *given]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://(\S+) ", said)
        assert found, said
        client = Client(found[1], token)
        client.submit(client.get("/api/work")["groups"][0])
        process.send_signal(number)
        ended = process.stdout.read()
    assert process.returncode == 130 and "stopped" in ended and "Traceback" not in ended
    assert [file.name for file in (context.run.path / "annotate" / "page").glob("submissions*")] == ["submissions.sqlite"]


def test_what_is_submitted_after_a_restore_counts_whatever_the_ledger_has(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=0)))
    run, page = context.run.path, context.run.path / "annotate" / "page" / "submissions.sqlite"
    token = roster(context).add("Ada")[1]

    def rated(*scores: int) -> None:
        with serving(context) as address:
            ada = Client(address, token)
            for score in scores:
                work = ada.get("/api/work")["groups"]
                ada.submit(work[0] if work else ada.get("/api/previous"), score)

    def copied(name: str) -> Path:
        return Path(shutil.copy(page, tmp_path / name))

    def counting(of: Context) -> set[float]:
        return set(ledger.current(of.run.step("annotate"))["score"].to_pylist())

    Database(page).close()  # a backup from before the first submission
    pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
    rated(1)
    pipeline("annotate", "backup", "--run", run, "--to", tmp_path / "backups")
    rated(2, 3)
    lost = copied("lost.sqlite")
    assert annotate.ingest(context, [lost]).new[0].accepted == 4 and counting(context) == {3.0}
    copies = [lost]
    for backup, score in ((1, 4), (0, 2), (1, 1)):  # the ledger has three revisions, more than either backup
        pipeline("annotate", "restore", "--run", run, "--from", _latest(tmp_path, backup))
        rated(score)
        copies.append(copied(f"after-{score}.sqlite"))
        batch = annotate.ingest(context, [copies[-1]]).new[0]
        assert (batch.accepted, batch.quarantined) == (4, {}) and counting(context) == {float(score)}
    assert annotate.ingest(context, copies).new == [], "a copy delivered twice"
    page.unlink()  # begun without any submission
    rated(3)
    assert annotate.ingest(context, [copied("last.sqlite"), lost]).new[0].accepted == 4 and counting(context) == {3.0}
    other = replace(context, run=RunDir(tmp_path / "other"))
    shutil.copytree(run / "generate", other.run.path / "generate")
    annotate.ingest(other, [tmp_path / "last.sqlite", *reversed(copies)])
    assert counting(other) == {3.0}, "in whatever order they come"
