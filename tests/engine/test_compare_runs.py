"""The program that compares two run directories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from paths import ROOT


def compare(*runs: Path) -> tuple[int, str]:
    program = [sys.executable, ROOT / "benchmarks" / "compare_runs.py", *runs]
    found = subprocess.run([*map(str, program)], capture_output=True, text=True)
    return found.returncode, found.stdout + found.stderr


def write(run: Path, **files: str) -> Path:
    for name, text in {"step/index.json": "{}", "step/model/manifest.json": "{}", **files}.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    return run


def test_what_may_differ_is_left_out(tmp_path: Path) -> None:
    names = ("manifest.json", "config.yaml", ".lock", "report.html", "step/units.jsonl", "step/train.log")
    one = write(tmp_path / "one", **dict.fromkeys(names, "1"))
    other = write(tmp_path / "other", **dict.fromkeys(names[1:], "2"))
    assert compare(one, other) == (0, f"2 files equal\n0 differ\n0 only in {one}\n0 only in {other}\n")


def test_differences_are_named(tmp_path: Path) -> None:
    one = write(tmp_path / "one", **{"step/model/manifest.json": "[]", "a.csv": ""})
    other = write(tmp_path / "other", **{"b.csv": ""})
    text = f"1 files equal\n1 differ\n  step/model/manifest.json\n1 only in {one}\n  a.csv\n1 only in {other}\n  b.csv\n"
    assert compare(one, other) == (1, text)


def test_nothing_compared_is_not_equal(tmp_path: Path) -> None:
    assert compare(tmp_path, tmp_path)[0] == 1
    status, text = compare(tmp_path, tmp_path / "none")
    assert status == 2 and "none is not a directory" in text
