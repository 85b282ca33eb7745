"""Benchmark items found in training data: exact copies, other encodings, the same words; measured on real images."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_copies import genai_row, judged, png, write
from PIL import Image

from reward.benchmarks import genai_bench
from reward.benchmarks.items import Item
from reward.benchmarks.result import BenchmarkResult
from reward.evaluation.bootstrap import Bootstrap
from reward.likeness import NEAR, perceptual_hash, words
from stages.evaluate_reward.leaks import TrainingSources, effect, find, hashed, leaks

QUICK = Bootstrap(resamples=100)


def encoded(image: Image.Image, kind: str = "JPEG", **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def scene(seed: int) -> Image.Image:
    """Smooth noise: structure at all scales, as in a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    folder = tmp_path_factory.mktemp("genai")
    rows = [
        genai_row(1, 11, 12, "leftvote") | {"source_image": {"bytes": encoded(scene(1)), "path": ""}},
        genai_row(1, 13, 12, "tievote") | {"source_image": {"bytes": encoded(scene(1)), "path": ""}},
        genai_row(2, 21, 22, "rightvote") | {"source_image": {"bytes": encoded(scene(2)), "path": ""}},
        genai_row(3, 31, 32, "leftvote", "Make the dog  Blue!") | {"source_image": {"bytes": encoded(scene(3)), "path": ""}},
        genai_row(4, 41, 42, "rightvote") | {"source_image": {"bytes": encoded(scene(4)), "path": ""}},
    ]
    write(folder / "image_edition" / "test_v1-00000-of-00001.parquet", rows)
    return list(genai_bench.load(folder))


def training(*sources: tuple[bytes | None, str]) -> TrainingSources:
    return hashed((f"t{number}", "train", image, text) for number, (image, text) in enumerate(sources))


def test_matches(items: list[Item]) -> None:
    index = training(
        (encoded(scene(9)), "nothing in common"),
        (encoded(scene(1)), "x"),
        (encoded(scene(2).resize((100, 90)), "PNG"), "y"),
        (encoded(scene(2), quality=20), "y"),
        (None, "make the DOG blue"),
        (b"no image", "z"),
    )
    matches = find(items, index)
    assert [(match["kind"], match["training_id"], match["others"], match["items"]) for match in matches] == [
        ("exact image", "t1", 0, 2),
        ("near image", "t2", 1, 1),
        ("instruction", "t4", 0, 1),
    ]
    assert matches[0]["distance"] == 0 and 0 <= matches[1]["distance"] <= NEAR
    assert index.images.num_rows == 4 and len(index.splits) == 6
    assert find(items, training()) == [] and find(items, training((encoded(scene(8)), "other"))) == []


def test_effect_on_the_score(items: list[Item]) -> None:
    scores = judged(items, {11: 1, 12: 0, 13: 0, 21: 0, 22: 1, 31: 1, 32: 0, 41: 1, 42: 0}, change=0.0)

    def evaluate(kept: Sequence[Item]) -> BenchmarkResult:
        return genai_bench.evaluate(kept, scores, bootstrap=QUICK)

    def figures(found: dict[str, Any]) -> list[float | None]:
        name = "without ties, equal scores wrong"
        (row,) = (row for row in found["rows"] if row["convention"] == "published" and row["figure"] == name)
        return [None if row[which] is None else row[which]["value"] for which in ("all", "without")]

    found = leaks(items, training((encoded(scene(1)), "x"), (encoded(scene(9)), "make the dog blue")), evaluate)
    by_image, by_any = found["effect"]["image"], found["effect"]["image or instruction"]
    assert by_image["items"] == 2 and figures(by_image) == [0.75, pytest.approx(2 / 3, abs=1e-6)]
    assert by_any["items"] == 3 and figures(by_any) == [0.75, 0.5]
    everything = find(items, training(*((encoded(scene(number)), "") for number in (1, 2, 3, 4))))
    assert figures(effect(items, everything, evaluate)) == [0.75, None]
    untouched = effect(items, [], evaluate)
    assert untouched["items"] == 0 and all(row["all"] == row["without"] for row in untouched["rows"])


def test_instructions_are_compared_by_their_words_in_any_script() -> None:
    assert words("Remove the dog.") == words("  remove   THE dog") and words("ＡＢ c") == words("ab C")
    assert words("把天空变成红色。") == words("把天空变成红色") != words("把天空变成蓝色") and words("remove the dogs") != words(
        "remove the dog"
    )


def test_a_blank_image_has_a_hash() -> None:
    assert perceptual_hash(Image.new("L", (5, 4000))) == perceptual_hash(Image.new("RGBA", (64, 64)))
    assert perceptual_hash(Image.open(io.BytesIO(png(3)))) != perceptual_hash(Image.open(io.BytesIO(png(4))))


def test_measured_on_real_images(shared_data: Path) -> None:
    """The figures in the docstring of ``reward.likeness``."""
    folder = shared_data / "triplets"
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text().splitlines()]
    scene_of = {row["source"]: row["group"] for row in rows}
    images = {source: Image.open(folder / source).convert("RGB") for source in scene_of}
    hashes = {source: perceptual_hash(image) for source, image in images.items()}
    assert (len(rows), len(images), len(set(scene_of.values()))) == (59, 52, 44)
    apart = [(hashes[a] ^ hashes[b]).bit_count() for a, b in combinations(images, 2) if scene_of[a] != scene_of[b]]
    assert len(apart) == 1314 and min(apart) == 18, "none of the pairs of different scenes is within the distance"
    copies = [
        perceptual_hash(other) ^ hashes[source]
        for source, image in images.items()
        for other in (Image.open(io.BytesIO(encoded(image, quality=30))), image.resize((448, 448)), image.resize((image.width // 2, 200)))
    ]
    assert max(bits.bit_count() for bits in copies) <= 4 <= NEAR
