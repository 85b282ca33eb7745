"""Checks of outputs: none of the real edits is flagged, and what is no edit is."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stages.config import FlowConfig, WorldConfig
from stages.editors import output_checks, world
from stages.editors.config import OutputsConfig
from stages.editors.editor import Edited, EditRequest
from stages.editors.output_checks import check
from stages.world import items
from stages.world.scenes import render


def noise(cells: int, size: int, seed: int = 0) -> Image.Image:
    """Normally distributed colours in cells, smoothly enlarged, as a decoder enlarges latent noise."""
    values = np.random.default_rng(seed).normal(128, 60, (cells, cells, 3)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(values).resize((size, size), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def triplets(shared_data: Path) -> list[tuple[Image.Image, Image.Image]]:
    """Sources and edits of public data sets, the edits at the source's size."""
    rows = [json.loads(line) for line in (shared_data / "triplets/triplets.jsonl").read_text().splitlines()]
    found = []
    for row in rows:
        source, edited = (Image.open(shared_data / "triplets" / row[role]).convert("RGB") for role in ("source", "candidate"))
        found.append((source, edited.resize(source.size, Image.Resampling.LANCZOS)))
    assert len(found) == 59
    return found


def test_no_real_edit_and_no_dark_one_is_flagged(triplets: list[tuple[Image.Image, Image.Image]]) -> None:
    flags = Counter(flag for source, edited in triplets for flag in check(source, edited)[1])
    assert not flags
    dark = Counter(flag for source, edited in triplets for flag in check(source, Image.eval(edited, lambda value: value // 4))[1])
    assert not dark


def test_copies_are_unchanged(triplets: list[tuple[Image.Image, Image.Image]]) -> None:
    for source, _ in triplets[::4]:
        file = io.BytesIO()
        source.save(file, "JPEG", quality=40)
        half = source.resize((source.width // 2, source.height // 2)).resize(source.size)
        for copy in (source, Image.open(file).convert("RGB"), half):
            assert check(source, copy)[1] == ["unchanged"]


@pytest.mark.parametrize(
    ("edited", "flags"),
    [
        (Image.new("RGB", (512, 512)), ["black"]),
        (Image.fromarray(np.random.default_rng(0).integers(0, 8, (512, 512, 3), np.uint8)), ["black"]),
        (Image.new("RGB", (512, 512), (128, 129, 130)), ["constant"]),
        (Image.new("RGB", (512, 512), "white"), ["constant"]),
        (noise(512, 512), ["noise"]),
        (noise(64, 512), ["noise"]),
        (noise(32, 512), ["noise"]),
        (noise(128, 1024), ["noise", "wrong-size"]),
    ],
)
def test_what_is_no_edit_is_flagged(triplets: list[tuple[Image.Image, Image.Image]], edited: Image.Image, flags: list[str]) -> None:
    source = next(source for source, _ in triplets if source.size == (512, 512))
    assert check(source, edited)[1] == flags


def test_a_night_with_a_few_lights_is_not_black(triplets: list[tuple[Image.Image, Image.Image]]) -> None:
    night = Image.new("RGB", (512, 512), (2, 2, 4))
    for x in range(32, 512, 96):
        night.paste((250, 230, 180), (x, 400, x + 8, 408))
    assert np.asarray(night).max(axis=2).mean() < output_checks.BLACK, "dark in the mean"
    assert "black" not in check(triplets[0][0].resize((512, 512)), night)[1]


def test_another_size_is_flagged_with_its_difference(triplets: list[tuple[Image.Image, Image.Image]]) -> None:
    source, edited = next(pair for pair in triplets if pair[0].size == (512, 512))
    measures, flags = check(source, edited.resize((512, 384)))
    assert (flags, measures["size_difference"]) == (["wrong-size"], 0.25)


def test_edits_of_the_toy_world_are_flagged_as_copies_only() -> None:
    flow = FlowConfig(name="toy", world=WorldConfig(size=32))
    flags: Counter[str] = Counter()
    for spec in world.EDITORS:
        editor = spec.open(None, flow)
        for number in range(20):
            item = items.item(0, "train", number)
            source = Image.fromarray(render(item.scene, 32))
            (result,) = editor.edit([EditRequest(source, item.instruction, 0, "world", items.to_metadata(item))])
            assert isinstance(result, Edited)
            flags.update(check(source, result.image)[1])
    assert set(flags) == {"unchanged"}


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (5, 5)])
def test_the_smallest_images_are_measured(size: tuple[int, int]) -> None:
    measures, _ = check(
        Image.new("RGB", size, "red"), Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8))
    )
    assert all(np.isfinite(value) for value in measures.values())


def test_the_strictest_policy_of_the_flags_counts() -> None:
    outputs = OutputsConfig()
    assert [outputs.policy(flags) for flags in ([], ["unchanged"], ["black", "unchanged"], ["black", "wrong-size"], ["content"])] == [
        "keep", "keep", "new-seed", "drop", "drop",
    ]  # fmt: skip
    assert OutputsConfig(wrong_size="keep").policy(["wrong-size"]) == "keep"


def test_an_unknown_content_filter_is_named() -> None:
    with pytest.raises(ValueError, match=r"generate\.outputs\.content_filter: there is no filter 'nsfw'; known: none are installed"):
        output_checks.content_filter("nsfw")
