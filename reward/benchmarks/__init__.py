"""Benchmarks of reward models for image editing, each a module with ``load(path) -> items`` and ``evaluate(items, scores) -> result``.

``tiger_editreward_bench``, ``editscore_editreward_bench``, ``genai_bench``, ``aurora_pair``, ``aurora_point``, ``imagenhub``. Each
module's docstring says what its data is, how a local copy is laid out, and what is published and what is sound about its figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from reward.benchmarks.figures import Bootstrap
    from reward.benchmarks.items import Item, Scores
    from reward.benchmarks.result import BenchmarkResult

MODULES = {
    "tiger-editreward-bench": "tiger_editreward_bench",
    "editscore-editreward-bench": "editscore_editreward_bench",
    "genai-bench": "genai_bench",
    "aurora-pair": "aurora_pair",
    "aurora-point": "aurora_point",
    "imagenhub": "imagenhub",
}


class Benchmark(Protocol):
    """What every benchmark module has."""

    NAME: str

    def load(self, path: str | Path) -> Sequence[Item]:
        """Items of a local copy. Raises ``ValueError`` naming file and column where it is not laid out as published."""
        ...

    def evaluate(self, items: Sequence[Item], scores: Scores, *, bootstrap: Bootstrap) -> BenchmarkResult:
        """Figures of the model and of the floors."""
        ...


def benchmark(name: str) -> Benchmark:
    """The module of a benchmark. Raises ``ValueError`` for a name that is none."""
    if name not in MODULES:
        raise ValueError(f"there is no benchmark {name!r}; there are {', '.join(MODULES)}")
    module: Benchmark = import_module(f"reward.benchmarks.{MODULES[name]}")  # ty: ignore[invalid-assignment]
    return module
