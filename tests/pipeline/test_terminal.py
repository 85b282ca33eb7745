"""What a terminal and a log file get: tables that fit, progress that is readable in both."""

from __future__ import annotations

import io
import os
import re
import sys
import sysconfig
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.words import text_table
from stages.engine import progress as progress_module
from stages.engine.cluster import ray_command
from stages.engine.progress import progress

CELLS = st.text(st.characters(categories=("L", "N")), max_size=70)
TABLES = st.integers(1, 9).flatmap(lambda columns: st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=6))


@settings(max_examples=60)
@given(TABLES, st.sampled_from([40, 80, 120]))
def test_a_table_is_no_wider_than_asked_and_keeps_every_character(cells: list[list[str]], width: int) -> None:
    printed = text_table(cells[0], cells[1:], width)
    assert max(map(len, printed.splitlines())) <= width
    for cell in [cell for row in cells for cell in row]:
        for letter in set(cell):
            assert printed.count(letter) >= sum(other.count(letter) for row in cells for other in row)


def test_wide_cells_are_wrapped_and_columns_that_do_not_fit_follow_below() -> None:
    rows = [["filter", "one two three four five six", "1"], ["finetune", "x", "2"]]
    assert text_table(["step", "result", "n"], rows, 30).splitlines() == [
        "step      result             n",
        "--------  -----------------  -",
        "filter    one two three      1",
        "          four five six",
        "finetune  x                  2",
    ]
    assert text_table(["step", "a" * 20, "b" * 20], [["s", "1", "2"]], 30).count("step") == 2
    assert "\n\n" not in text_table(["step", "a" * 20, "b" * 20], [["s", "1", "2"]], 31 + 20)


def test_a_file_gets_tables_as_wide_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert max(map(len, text_table(["a", "b"], [["x" * 90, "y" * 90]]).splitlines())) == 182


def test_a_log_gets_lines_even_when_nothing_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_module, "SECONDS_PER_LINE", 0.02)
    with closing(progress("filter: score", 1500, unit="edits", initial=500)) as shown:
        shown.show(750, "MFU 41%")
        printed = ""
        while printed.count("filter: score: 750/1500 edits, 50 %") < 2:
            printed += capsys.readouterr().err
            time.sleep(0.01)
    printed += capsys.readouterr().err
    assert "\r" not in printed and printed.startswith("filter: score: 500/1500 edits, 33 %")
    assert printed.splitlines()[-1].endswith("left, MFU 41%")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with closing(progress("filter: inspect", 8, unit="edits")) as shown:
        shown.show(4)
        shown.show(8)
    assert re.search(r"filter: inspect: 100%\|.*\| 8/8 ", sys.stderr.getvalue())  # ty: ignore[unresolved-attribute]


def test_the_command_for_the_token_works_where_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}/usr/bin")
    assert ray_command() == "ray"
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(scripts.parent)
    assert ray_command() == f"{scripts.name}/ray" and Path(ray_command()).exists()
    monkeypatch.chdir("/")
    assert Path("/", ray_command()).exists()
