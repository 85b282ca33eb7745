"""Set-up by make, with interpreters that only note what they are asked: an old Python is refused or passed over, an old .venv replaced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from paths import ROOT

INTERPRETER = """\
#!/bin/sh
echo "{name} $*" >> "{log}"
case "$1" in
  -V) echo "Python {version}" ;;
  -c) exit {unsuitable} ;;
  -m) if [ "$2" = venv ]; then rm -rf .venv; mkdir -p .venv/bin; cp "{made}" .venv/bin/python; cp "{made}" .venv/bin/pipeline; fi ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


class Project:
    """A folder with our Makefile, and a PATH of nothing but interpreters and what make needs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.path = folder, folder / "log", folder / "path"
        self.path.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        for name in ("make", "sh", "rm", "mkdir", "cp", "touch"):
            (self.path / name).symlink_to(shutil.which(name) or name)
        self.interpreter(folder / "made", "made", "3.12.13")

    def interpreter(self, path: Path, name: str, version: str) -> None:
        unsuitable = int(tuple(map(int, version.split("."))) < (3, 11))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(INTERPRETER.format(name=name, version=version, unsuitable=unsuitable, log=self.log, made=self.folder / "made"))
        path.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHON" and not key.startswith("MAKE")}
        return subprocess.run(
            [self.path / "make", *arguments], cwd=self.folder, env=environment | {"PATH": str(self.path)}, capture_output=True, text=True
        )

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    ("version", "suits"), [((3, 10, 19), False), ((3, 11, 2), True), ((3, 12, 1), False), ((3, 12, 2), True), ((3, 13, 0), True)]
)
def test_pythons_that_crash_are_refused_as_old_ones_are(version: tuple[int, int, int], suits: bool) -> None:
    """By make, and by pip, which reads the same of pyproject.toml."""
    (condition,) = re.findall(r"^NEW_ENOUGH := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = subprocess.run([sys.executable, "-c", f"import sys; sys.version_info = {version}; {condition}"])
    assert (asked.returncode == 0) == suits
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SpecifierSet(project["requires-python"]).contains(".".join(map(str, version))) == suits


def test_an_old_python_alone_is_refused_in_one_sentence_and_leaves_nothing(project: Project) -> None:
    project.interpreter(project.path / "python3", "python3", "3.10.13")
    found = project.make("demo")
    assert found.returncode and not (project.folder / ".venv").exists()
    sentence = found.stderr.splitlines()[0]
    assert "Python 3.11 or newer" in sentence and "python3 is Python 3.10.13" in sentence and "make demo PYTHON=" in sentence
    assert "python3.9 is not there" in project.make("test", "PYTHON=python3.9").stderr


def test_a_newer_python_is_found_and_an_old_environment_replaced(project: Project) -> None:
    project.interpreter(project.path / "python3", "python3", "3.10.13")
    project.interpreter(project.path / "python3.12", "python3.12", "3.12.13")
    project.interpreter(project.folder / ".venv" / "bin" / "python", "poisoned", "3.10.13")
    assert project.make("demo").returncode == 0
    assert "python3.12 -m venv --clear .venv" in project.calls()
    assert "made -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ." in project.calls()
    assert "made run all --config demo" in project.calls()
    assert project.make("demo-small").returncode == 0
    assert project.calls()[-1:] == ["made run all --config demo-small"] and not any("pip install" in call for call in project.calls())


def test_what_the_tests_need_comes_with_the_tests_and_keeps_the_environment(project: Project) -> None:
    project.interpreter(project.path / "python3", "python3", "3.11.7")
    assert project.make("demo").returncode == 0
    assert project.make("test").returncode == 0
    assert not any("-m venv" in call for call in project.calls())
    assert "made -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .[dev]" in project.calls()
    assert project.make("demo").returncode == 0 and project.calls() == ["made run all --config demo"]


def test_an_environment_that_was_not_finished_is_made_again(project: Project) -> None:
    project.interpreter(project.path / "python3", "python3", "3.11.7")
    project.interpreter(project.folder / ".venv" / "bin" / "python", "half-made", "3.11.7")
    assert project.make("demo").returncode == 0
    assert "python3 -m venv --clear .venv" in project.calls()
