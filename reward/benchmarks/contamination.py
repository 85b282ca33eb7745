"""Benchmark sources and instructions that occur in training data, and what they do to the score.

In: the benchmark's items and the sources that a model was trained on. Out: a list of matches, each with the nearest training source, and
the benchmark's figures with and without the items that match. An image matches exactly (equal bytes) or nearly (``perceptual_hash``); an
instruction matches when it has the same words. Instructions such as "remove the dog" coincide without any leak, so images and
instructions are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reward.benchmarks.instruction_words import words
from reward.benchmarks.items import Edit, Item
from reward.benchmarks.perceptual_hash import NEAR, distances, perceptual_hash
from reward.benchmarks.pictures import Picture, content_of, read
from reward.benchmarks.result import BenchmarkResult
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError

BATCH = 64

Kind = Literal["exact image", "near image", "instruction"]
IMAGE_KINDS: tuple[Kind, ...] = ("exact image", "near image")


@dataclass(frozen=True)
class TrainingSource:
    """A source that a model has seen. image: encoded bytes, None where it has none. split: which part of the data it belongs to."""

    source_id: str
    image: bytes | None
    instruction: str
    split: str = "train"


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


class TrainingIndex:
    """What is remembered of training sources; images are hashed, not kept. Undecodable ones are counted."""

    def __init__(self, sources: Iterable[TrainingSource]) -> None:
        self.names: list[tuple[str, str]] = []
        self.contents: dict[str, list[int]] = {}
        self.instructions: dict[str, list[int]] = {}
        self.undecodable = 0
        hashes: list[int] = []
        hashed: list[int] = []
        for number, source in enumerate(sources):
            self.names.append((source.source_id, source.split))
            self.instructions.setdefault(words(source.instruction), []).append(number)
            if source.image is None:
                continue
            self.contents.setdefault(content_of(source.image), []).append(number)
            found = _hash(source.image)
            if found is None:
                self.undecodable += 1
            else:
                hashes.append(found)
                hashed.append(number)
        self.hashes = np.array(hashes, dtype=np.uint64)
        self.hashed = np.array(hashed, dtype=np.int64)


def find(items: Sequence[Item], training: TrainingIndex, *, distance: int = NEAR) -> list[Match]:
    """Matches, images first; one per source image or instruction of the benchmark."""
    edits = [edit for item in items for edit in item.edits[:1]]
    pictures: dict[str, Picture] = {edit.source.content: edit.source for edit in edits}
    image_items = _count(edit.source.content for edit in edits)
    matches = []
    for content, data in _images(list(pictures.values())):
        exact = training.contents.get(content, [])
        if exact:
            matches.append(_match("exact image", content, exact, 0, training, image_items[content]))
            continue
        found = _hash(data)
        if found is None or not len(training.hashes):
            continue
        bits = distances(np.array([found], dtype=np.uint64), training.hashes)[0]
        near = np.flatnonzero(bits <= distance)
        if len(near):
            nearest = near[np.argsort(bits[near], kind="stable")]
            numbers = training.hashed[nearest].tolist()
            matches.append(_match("near image", content, numbers, int(bits[nearest[0]]), training, image_items[content]))
    texts = _count(edit.instruction for edit in edits)
    for instruction, count in texts.items():
        asked = words(instruction)
        same = training.instructions.get(asked, []) if asked else []
        if same:
            matches.append(_match("instruction", instruction, same, 0, training, count))
    return matches


def effect(
    items: Sequence[Item], matches: Sequence[Match], kinds: Sequence[Kind], evaluate: Callable[[Sequence[Item]], BenchmarkResult]
) -> Effect:
    """Evaluate with and without the items that match in one of the kinds."""
    known = {(match.kind == "instruction", match.benchmark) for match in matches if match.kind in kinds}

    def matched(edit: Edit) -> bool:
        return (False, edit.source.content) in known or (True, edit.instruction) in known

    kept = [item for item in items if not matched(item.edits[0])]
    everything = evaluate(items)
    without = everything if len(kept) == len(items) else evaluate(kept) if kept else None
    return Effect(len(items) - len(kept), everything, without)


def _images(pictures: Sequence[Picture]) -> Iterator[tuple[str, bytes]]:
    for first in range(0, len(pictures), BATCH):
        part = pictures[first : first + BATCH]
        data = read(part)
        yield from ((picture.content, data[picture.content]) for picture in part)


def _hash(data: bytes) -> int | None:
    try:
        return perceptual_hash(decode(data))
    except ImageError:
        return None


def _match(kind: Kind, benchmark: str, numbers: Sequence[int], bits: int, training: TrainingIndex, items: int) -> Match:
    name, split = training.names[numbers[0]]
    return Match(kind, benchmark, name, split, bits, len(numbers) - 1, items)


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
