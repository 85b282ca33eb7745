"""The layer rules of the design, and what the command line may import."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT


def test_imports_only_go_down() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    found = subprocess.run([sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("pipeline.cli", ["torch", "ray", "transformers", "diffusers", "pyarrow", "pydantic"]),  # --help must answer at once
        (
            "stages.annotate.page.server, stages.annotate.page.lead_routes",
            ["torch", "ray", "transformers", "scipy", "pandas"],
        ),  # the page is there at once
        ("stages.config", ["torch", "ray", "transformers", "diffusers", "pyarrow"]),
        ("reward.config", ["torch", "transformers"]),
        ("finetune.config", ["torch", "diffusers"]),
    ],
)
def test_light_modules_load_nothing_heavy(module: str, heavy: list[str]) -> None:
    code = f"import sys, {module}; print(sorted(set({heavy}) & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
