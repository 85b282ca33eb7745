"""Each kind of thing that docs/architecture.md says how to add is added to a copy of the product and used there.

A folder beside this file is one example: ``new/`` holds its new product files under their paths, ``lines.yaml`` the lines that existing
files get, ``use.py`` a program that asserts that the addition works, run with the copy as the only product on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from paths import ROOT

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLES = sorted(path.parent for path in HERE.glob("*/use.py"))
PRODUCT = ("pipeline", "stages", "reward", "finetune", "configs")


def touched(example: Path) -> set[str]:
    """Product files that an example adds or changes."""
    added = {str(path.relative_to(example / "new")) for path in (example / "new").rglob("*") if path.is_file()}
    return added | {line["file"] for line in _lines(example)}


def _lines(example: Path) -> list[dict[str, str]]:
    path = example / "lines.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []


def add(example: Path, product: Path) -> None:
    """Put the example's files in place, and its lines after the lines that they name."""
    for path in (example / "new").rglob("*.py"):
        target = product / path.relative_to(example / "new")
        assert not target.exists(), f"{example.name}: {target.name} is there already"
        shutil.copyfile(path, target)
    for line in _lines(example):
        target = product / line["file"]
        text = target.read_text(encoding="utf-8")
        assert text.count(line["after"]) == 1, f"{example.name}: {line['file']} should hold {line['after']!r} once"
        target.write_text(text.replace(line["after"], line["after"] + line["insert"]), encoding="utf-8")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with all examples added."""
    copy = tmp_path_factory.mktemp("product")
    for name in PRODUCT:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for example in EXAMPLES:
        add(example, copy)
    return copy


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_addition_works(example: Path, product: Path, tmp_path: Path) -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(product), str(ROOT / "tests" / "support")])}
    found = subprocess.run(
        [sys.executable, "-c", program, str(product), str(example / "use.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_documented_number_of_files_is_the_real_one() -> None:
    """The table "to add X, touch these files" of docs/architecture.md has a row for each example, with its number of files."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (?:an? )?([\w ]+?) \| (\d) \|", text, re.MULTILINE))
    assert {example.name.replace("_", " "): str(len(touched(example))) for example in EXAMPLES} == rows
