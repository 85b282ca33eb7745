"""A benchmark's figures without the items that occur in training data. Images and instructions are counted separately, because instructions
such as "remove the dog" are equal without any leak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from reward.benchmarks.items import BenchmarkEdit, Item
from reward.benchmarks.result import BenchmarkResult

Kind = Literal["exact image", "near image", "instruction"]
IMAGE_KINDS: tuple[Kind, ...] = ("exact image", "near image")


@dataclass(frozen=True)
class Match:
    """A source image or an instruction of the benchmark that occurs in the training data.

    benchmark: content of the image, or the instruction. training_id, split: the nearest training source (of several the first). distance:
    differing bits. others: further training sources that match as well. items: items of the benchmark with that image or instruction.
    """

    kind: Kind
    benchmark: str
    training_id: str
    split: str
    distance: int
    others: int
    items: int


@dataclass(frozen=True)
class Effect:
    """Figures on all items, and without the items that match (None where no item is left)."""

    items: int
    all: BenchmarkResult
    without: BenchmarkResult | None


def effect(
    items: Sequence[Item], matches: Sequence[Match], kinds: Sequence[Kind], evaluate: Callable[[Sequence[Item]], BenchmarkResult]
) -> Effect:
    """Evaluate with and without the items that match in one of the kinds."""
    known = {(match.kind == "instruction", match.benchmark) for match in matches if match.kind in kinds}

    def matched(edit: BenchmarkEdit) -> bool:
        return (False, edit.source.content) in known or (True, edit.instruction) in known

    kept = [item for item in items if not matched(item.edits[0])]
    everything = evaluate(items)
    without = everything if len(kept) == len(items) else evaluate(kept) if kept else None
    return Effect(len(items) - len(kept), everything, without)
