"""The plug-in that docs/editors.md shows, installed as a package: listed, configured and run in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

USE = """
from PIL import Image
from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editor import EditRequest

spec = catalogue.find("tint", "generate.editors")
editor = spec.open(catalogue.settings_of(spec, {"strength": 1.0}, "generate.editors.0.settings"), FlowConfig(name="x"))
image = Image.new("RGB", (5, 3), "white")
colours = [made.image.getcolors() for made in editor.edit([EditRequest(image, "tint it", seed) for seed in (1, 2, 1)])]
assert colours[0] == colours[2] != colours[1] and len(colours[0]) == 1, colours
try:
    catalogue.settings_of(spec, {"strength": 2}, "generate.editors.0.settings")
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment's variables with the package on the path, installed by pip."""
    text = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8").partition("\n## Your own editor\n")[2]
    folder = tmp_path_factory.mktemp("tint")
    code, project = (re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for language in ("python", "toml"))
    assert code and project
    assert len(code[1].splitlines()) <= 40
    (folder / "tint.py").write_text(code[1])
    (folder / "pyproject.toml").write_text(project[1])
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder / "to"), "."]
    subprocess.run(command, cwd=folder, check=True, env=os.environ | {"PIP_NO_INDEX": "1"})
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "to"), str(ROOT)])}


def run(environment: dict[str, str], *command: str) -> str:
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=True).stdout


def test_the_documented_plugin_is_listed_configured_and_run(installed: dict[str, str]) -> None:
    listed = run(installed, "-m", "pipeline.cli", "editors")
    assert re.search(r"^tint +installed +MIT +none +not run$", listed, re.MULTILINE)
    error = run(installed, "-c", USE)
    assert error.startswith("generate.editors.0.settings.strength: ") and "the settings of tint are: strength" in error


def test_two_editors_of_one_name_are_refused(installed: dict[str, str], tmp_path: Path) -> None:
    about = tmp_path / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[edit_reward_pipeline.editors]\nother = tint:EDITORS\n")
    both = installed | {"PYTHONPATH": os.pathsep.join([str(tmp_path), installed["PYTHONPATH"]])}
    refused = subprocess.run([sys.executable, "-m", "pipeline.cli", "editors"], env=both, capture_output=True, text=True)
    assert refused.returncode == 1
    assert re.fullmatch(r"error: the package \w+ brings an editor 'tint', and there is one already; remove or rename one\n", refused.stderr)
