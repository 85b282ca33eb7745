"""Who may import whom (the contracts of pyproject.toml), and what must import quickly."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

from paths import ROOT

HEAVY = {
    ("pipeline.cli",): ["torch", "ray", "transformers", "diffusers", "pyarrow", "numpy", "pydantic", "yaml"],  # --help answers at once
    ("stages.config",): ["torch", "ray", "transformers", "diffusers", "pyarrow", "numpy", "scipy"],
    ("stages.annotate.page.server", "stages.annotate.page.lead_routes"): ["torch", "ray", "transformers", "scipy", "pandas"],
    ("pipeline.planning.plan", "pipeline.status"): ["torch", "transformers"],
}
"""What some modules must not load, also not through what they import. In the order in which one process imports them."""


def test_import_contracts_hold() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    found = subprocess.run([sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_light_modules_load_nothing_heavy() -> None:
    code = """
import importlib, json, sys
for modules, heavy in json.loads(sys.argv[1]):
    for module in modules:
        importlib.import_module(module)
    if found := sorted(set(heavy) & sys.modules.keys()):
        sys.exit(f"{', '.join(modules)} load {', '.join(found)}")
"""
    found = subprocess.run([sys.executable, "-c", code, json.dumps([*HEAVY.items()])], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_packages_of_the_stages_are_one_docstring() -> None:
    """An ``__init__.py`` that imports makes every light module of its package heavy, and circles."""
    for path in (ROOT / "stages").rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert [type(node) for node in body] == [ast.Expr] and isinstance(ast.literal_eval(body[0].value), str), path
