"""`annotate start`: one command from a folder of photographs to the rating page, with the shipped configuration."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from command import pipeline, refusal
from filter_here import use
from paths import ROOT
from photographs import edited_photographs, write_table

from pipeline import cli
from stages.annotate.page.roster import roster_of
from stages.engine.rundir import RunDir

CONFIG = ROOT / "configs" / "my-photographs.yaml"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Units run in this process; their keys are listed as they are done."""
    found: list[str] = []
    use(monkeypatch, found)
    return found


@contextmanager
def interrupting(port: int) -> Iterator[list[int]]:
    """Presses Ctrl-C as soon as the page answers; lists the status of its answer to a person without a link."""
    statuses: list[int] = []
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(0.02) and not statuses:
            with suppress(URLError):
                try:
                    statuses.append(urlopen(f"http://127.0.0.1:{port}/api/session", timeout=30).status)
                except HTTPError as error:
                    statuses.append(error.code)
                os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
    thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def start(run: Path, table: Path, *names: str) -> str:
    """What the command prints until it is interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = ["--config", str(CONFIG), "--run", str(run), f"generate.candidates.path={table}", f"annotate.serve.port={port}"]
    with interrupting(port) as statuses:
        result = CliRunner().invoke(cli.main, ["annotate", "start", *given, *names])
    assert result.exit_code == 130 and statuses == [401], result.output
    assert "stopped" in result.output and "Traceback" not in result.output
    assert "error:" not in result.output
    return result.output


def test_one_command_from_photographs_to_links_and_what_is_done_is_skipped(tmp_path: Path, log: list[str]) -> None:
    table, run = write_table(tmp_path / "photos" / "edits.csv", edited_photographs(3)), tmp_path / "run"
    said = start(run, table, "--annotator", "Ada Lovelace", "--annotator", "Ben", "--lead", "Boss")
    links = dict(re.findall(r"^\S+  (.+)  http://127.0.0.1:\d+/a/(\S+)$", said, re.MULTILINE))
    roster = roster_of(RunDir(run))
    assert list(links) == ["Ada Lovelace", "Ben", "Boss"]
    for name, token in links.items():
        person = roster.of_token(token)
        assert person is not None and (person.name, person.role) == (name, "lead" if name == "Boss" else "annotator")
    done, groups = len(log), (run / "annotate" / "export" / "groups.jsonl").read_text().splitlines()
    assert done > 0 and len(groups) == 3

    pipeline("annotate", "export", "--run", run, "--limit", "2", "--replace")
    pipeline("annotate", "roster", "revoke", "--run", run, "Ben")
    again = start(run, table, "--annotator", "Ada Lovelace", "--annotator", "Cyd", "annotate.plan.experts=[annotator-03,annotator-02]")
    assert re.findall(r"experts names (annotator-..), who is no annotator on the roster", again) == ["annotator-02"], "Ben"
    assert len(log) == done and "up to date" in again
    assert len((run / "annotate" / "export" / "groups.jsonl").read_text().splitlines()) == 2
    assert re.findall(r"^\S+  (.+)  http", again, re.MULTILINE) == ["Cyd"]
    assert "Ben  the link is revoked" in again and "roster renew" in again
    assert roster.of_token(links["Ada Lovelace"]) is not None and roster.of_token(links["Ben"]) is None


def test_mistakes_are_one_sentence_before_any_work(tmp_path: Path, log: list[str]) -> None:
    table, run = write_table(tmp_path / "photos" / "edits.csv", edited_photographs(3)), tmp_path / "run"
    given = ("annotate", "start", "--config", CONFIG, "--run", run, f"generate.candidates.path={table}")
    assert "give --annotator NAME" in refusal(*given)
    assert "give --annotator NAME" in refusal(*given, "--lead", "Boss")
    assert "the name ' ' is empty" in refusal(*given, "--annotator", " ")
    assert "--lead 'Ada': the roster has this name as annotator" in refusal(*given, "--annotator", "Ada", "--lead", "Ada")
    twice = refusal(*given, "--annotator", "Ada", "--annotator", "ADA")
    assert "--annotator 'ADA' is Ada on the roster or before it; spell one person in one way" in twice
    assert "--expose" in refusal(*given, "--annotator", "Ada", "--host", "0.0.0.0")
    assert not run.exists() and not log
    missing = ("annotate", "start", "--config", CONFIG, "--run", run, "--annotator", "Ada", "generate.candidates.path=nowhere/edits.csv")
    assert "nowhere/edits.csv" in refusal(*missing)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in refusal(*given, "--annotator", "Ada", f"annotate.serve.port={port}")
    assert roster_of(RunDir(run)).people == []
