"""Environments are shown, made, and found missing or outdated; an editor runs in one that was made here from a local wheel."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import pipeline, refusal
from interpreters import add_pillow, wheel
from packaging.requirements import Requirement
from PIL import Image

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editor import Edited, EditRequest
from stages.editors.process import specs
from stages.editors.process.environment import LOCKS, Checkout, Environment, interpreter
from stages.editors.process.settings import ProcessSettings
from stages.editors.process.specs import process_editor

HERE = ".".join(map(str, sys.version_info[:2]))
BRIDGE = Path(__file__).with_name("odd_bridge.py")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """That of the editor ``odd``, which is in the catalogue during the test: one package, from a local wheel."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lock = tmp_path / "odd.txt"
    lock.write_text(f"# local\ntoolkit @ {wheel(tmp_path, '1.5').as_uri()}\n")
    odd = Environment("odd", lock, HERE, "MIT", checkout=Checkout("https://example.org/odd", "c0ffee", "odd.py"))
    spec = process_editor("odd", odd, BRIDGE, ProcessSettings, "", None)
    monkeypatch.setitem(catalogue.specs(), "odd", spec)
    monkeypatch.setitem(specs.ENVIRONMENTS, "odd", odd)
    return odd


def lacks(environment: Environment) -> str:
    return environment.missing("odd", None, None)


def test_an_environment_is_made_from_its_lock_file_and_its_editor_runs_in_it(environment: Environment) -> None:
    assert lacks(environment) == f"there is no environment in {environment.folder}; `pipeline editors install odd` makes it"
    assert f"odd: {lacks(environment)}" in pipeline("editors").output
    shown = pipeline("editors", "install", "odd", "--yes").output
    assert "    toolkit @ file:" in shown
    assert "licences: MIT" in shown
    clone = f"`git clone https://example.org/odd {environment.folder}/checkout && git -C {environment.folder}/checkout checkout c0ffee`"
    assert clone in shown
    assert lacks(environment) == f"{environment.folder}/checkout has no odd.py; {clone} brings it"
    (environment.folder / "checkout").mkdir()
    (environment.folder / "checkout" / "odd.py").touch()
    assert lacks(environment) == ""

    add_pillow(environment.folder / "venv")
    spec = catalogue.find("odd", "generate.editors")
    editor = spec.open(spec.settings(), FlowConfig(name="x"))
    image = Image.new("RGB", (4, 4), (1, 2, 3))
    (made,) = editor.edit([EditRequest(image, "invert", 0)])
    editor.close()
    assert isinstance(made, Edited)
    assert np.array_equal(np.asarray(made.image), 255 - np.asarray(image))
    assert dict(made.record)["versions"]["toolkit"] == "1.5"
    assert dict(made.record)["versions"]["checkout"] == "unknown"  # no clone

    environment.lock.write_text("# another version\n")
    assert lacks(environment).endswith("is of another lock file; `pipeline editors install odd` makes it anew")


def test_nothing_is_made_without_consent(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from pipeline import cli

    declined = CliRunner().invoke(cli.main, ["editors", "install", "odd"], input="n\n")
    assert declined.exit_code == 1
    assert "toolkit @ file:" in declined.output
    assert not environment.folder.exists()


def test_what_cannot_be_installed_is_one_sentence(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no editor 'nonesuch'; known: " in refusal("editors", "install", "nonesuch")
    assert "editor world/quill has no environment to install; those that have one: omnigen2, bagel" in refusal(
        "editors", "install", "world/quill"
    )
    refused = refusal("editors", "install", "odd", "--yes", "--python", "/nowhere")
    assert "--python /nowhere is not a program of this machine; name an interpreter" in refused
    monkeypatch.setitem(specs.ENVIRONMENTS, "odd", replace(environment, python="2.7"))
    assert f"is for Python 2.7, and {sys.executable} is {HERE}; give --python /path/to/python2.7" in refusal(
        "editors", "install", "odd", "--yes"
    )


def test_a_failed_installation_leaves_no_environment_that_counts(environment: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "installed.json").write_text(json.dumps({"lock": environment.lock_hash}))
    environment.lock.write_text(f"toolkit @ {(tmp_path / 'missing-1-py3-none-any.whl').as_uri()}\n")
    assert "the packages of odd cannot be installed" in refusal("editors", "install", "odd", "--yes", "--folder", str(folder))
    assert interpreter(folder).exists()
    assert not (folder / "installed.json").exists()


def test_an_interpreter_of_ones_own(environment: Environment, tmp_path: Path) -> None:
    assert environment.missing("odd", "/nowhere/python", None) == "settings.python: there is no interpreter /nowhere/python"
    (tmp_path / "odd.py").touch()
    assert environment.missing("odd", sys.executable, str(tmp_path)) == ""
    spec = catalogue.find("odd", "generate.editors")
    with pytest.raises(ValueError, match=r"editor odd: settings.python: there is no interpreter /nowhere/python"):
        spec.open(spec.settings(python="/nowhere/python"), FlowConfig(name="x"))


def test_an_edit_depends_on_settings_and_lock_file_not_on_places(environment: Environment) -> None:
    spec, flow = catalogue.find("odd", "generate.editors"), FlowConfig(name="x")
    plain = spec.identity(spec.settings(), flow)
    assert plain == spec.identity(spec.settings(checkout="/c", start_seconds=5, edit_seconds=5), flow)
    assert spec.identity(spec.settings(steps=3), flow) != plain != spec.identity(spec.settings(weights="/w"), flow)
    environment.lock.write_text("# another\n")
    assert spec.identity(spec.settings(), flow) != plain


def test_shipped_lock_files_pin_every_package() -> None:
    locks = sorted(LOCKS.glob("*.txt"))
    assert locks == sorted({environment.lock for environment in specs.ENVIRONMENTS.values()})
    for lock in locks:
        pins = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
        assert {"torch", "transformers", "huggingface-hub", "pillow"} <= {pin.partition("==")[0] for pin in pins}
        assert all("==" in pin or re.search("@ git[+]https://.*@[0-9a-f]{40}$", pin) for pin in pins)
        parsed = [Requirement(pin) for pin in pins]
        assert len({requirement.name for requirement in parsed}) == len(pins) and not any(requirement.extras for requirement in parsed)
