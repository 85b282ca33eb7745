"""Names of the benchmarks of reward models. A benchmark is the module of its name, with ``_`` for ``-``; configurations take the names
from here, so nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

if TYPE_CHECKING:
    from reward.benchmarks.items import Item, Scores
    from reward.benchmarks.result import BenchmarkResult
    from reward.evaluation.bootstrap import Bootstrap

BenchmarkName = Literal[
    "tiger-editreward-bench",
    "editscore-editreward-bench",
    "genai-bench",
    "aurora-pair",
    "aurora-point",
    "imagenhub",
]


class Benchmark(Protocol):
    """What every benchmark's module has."""

    def load(self, path: str | Path) -> Sequence[Item]:
        """Items of a local copy. Raises ``ValueError`` naming file and column where it is not laid out as published."""
        ...

    def evaluate(self, items: Sequence[Item], scores: Scores, *, bootstrap: Bootstrap) -> BenchmarkResult:
        """Figures of the model and of the trivial baselines."""
        ...


def benchmark(name: str) -> Benchmark:
    """The module of a benchmark. Raises ``ValueError`` for an unknown name."""
    if name not in get_args(BenchmarkName):
        raise ValueError(f"there is no benchmark {name!r}; there are {', '.join(get_args(BenchmarkName))}")
    module: Benchmark = import_module(f"reward.benchmarks.{name.replace('-', '_')}")  # ty: ignore[invalid-assignment]
    return module
