"""The layer rules of the design, and what the command line may import."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_imports_only_go_down() -> None:
    found = subprocess.run([sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"], cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


def test_help_and_configuration_load_nothing_heavy() -> None:
    code = "import sys, pipeline.cli; heavy = {'torch', 'ray', 'transformers', 'diffusers', 'pyarrow', 'pydantic'}; print(sorted(heavy & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.strip() == "[]"
    code = "import sys, stages.config; heavy = {'torch', 'ray', 'transformers', 'diffusers', 'pyarrow'}; print(sorted(heavy & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.strip() == "[]"
