"""Canvas: sizes that editors leave alone, and a source that comes back as it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stages.editors.canvas_rules import KONTEXT_SIZES, MEGAPIXEL, RULES, qwen, step1x
from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.on_canvas import FILTER, OnCanvas, onto, place

ASPECTS = ((512, 512), (640, 480), (480, 640), (720, 480), (854, 480), (300, 900), (1100, 400), (333, 517))
LARGE = ((1600, 900), (1300, 1700))


class Copying:
    """Gives back what it gets, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[Image.Image] = []

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        self.seen += [request.image for request in batch]
        return [Edited(request.image) if request.seed else Failure("refused", "no") for request in batch]

    def save_memory(self) -> bool:
        return True

    def close(self) -> None:
        self.seen.clear()


@pytest.fixture(scope="module")
def photograph(shared_data: Path) -> Image.Image:
    """A mosaic of real photographs at their own resolution, 2000 x 2000 pixels."""
    mosaic = Image.new("RGB", (2000, 2000))
    photographs = [Image.open(path).convert("RGB") for path in sorted(shared_data.glob("triplets/magicbrush/*input.jpg"))[:4]]
    for number in range(16):
        mosaic.paste(photographs[number % 4].resize((500, 500)), (number % 4 * 500, number // 4 * 500))
    return mosaic


def psnr(one: Image.Image, other: Image.Image) -> float:
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def edit(editor: OnCanvas, image: Image.Image) -> Edited:
    (result,) = editor.edit([EditRequest(image, "nothing", 1)])
    assert isinstance(result, Edited)
    return result


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        ((512, 512), {"kontext": (1024, 1024), "qwen": (1024, 1024), "step1x": (1024, 1024), "klein": (512, 512)}),
        ((640, 480), {"kontext": (1184, 880), "qwen": (1184, 896), "step1x": (1168, 880), "klein": (640, 480)}),
        ((1248, 832), {"kontext": (1248, 832), "qwen": (1248, 832), "step1x": (1248, 832), "klein": (1248, 832)}),
        ((1920, 1080), {"kontext": (1392, 752), "qwen": (1376, 768), "step1x": (1360, 768), "klein": (1360, 752)}),
        ((333, 517), {"klein": (336, 528)}),
    ],
)
def test_sizes_are_those_of_the_published_rules(source: tuple[int, int], sizes: dict[str, tuple[int, int]]) -> None:
    assert {name: RULES[name](*source) for name in sizes} == sizes
    assert step1x(512, 512, 512) == (512, 512)


@pytest.mark.parametrize("name", RULES)
def test_a_canvas_is_its_own_canvas(name: str) -> None:
    for aspect in np.geomspace(1 / 20, 20, 400):
        for height in (1, 90, 700, 5000):
            canvas = RULES[name](max(1, round(height * aspect)), height)
            assert RULES[name](*canvas) == canvas
            assert max(canvas) <= 8 * min(canvas)
            assert canvas[0] % 16 == canvas[1] % 16 == 0
            assert canvas in KONTEXT_SIZES if name == "kontext" else math.prod(canvas) < 1.1 * MEGAPIXEL


@pytest.mark.parametrize("name", RULES)
def test_an_editor_that_does_nothing_gives_the_source_back(name: str, photograph: Image.Image) -> None:
    """As near as the same filter comes that scales a whole image and back, without a canvas."""
    for size in (*ASPECTS, *LARGE):
        source = photograph.crop((100, 100, 100 + size[0], 100 + size[1]))
        result = edit(OnCanvas(Copying(), RULES[name]), source)
        record = dict(result.record)
        assert result.image.size == size
        scaled = (round(size[0] * record["scale"]), round(size[1] * record["scale"]))
        resampled = psnr(source.resize(scaled, FILTER).resize(size, FILTER), source)
        assert psnr(result.image, source) > min(resampled - 0.3, 60)
        assert psnr(result.image, source) > (35 if size in ASPECTS else 26)
        if record["filter"] == "none":
            assert result.image.tobytes() == source.tobytes()


def test_the_source_is_scaled_uniformly_and_padded_with_its_edge() -> None:
    x, y = np.meshgrid(np.arange(300), np.arange(900))
    ramp = Image.fromarray(np.stack([x * 0.8, y / 4, 0 * x], axis=2).astype(np.uint8))
    editor = Copying()
    record = dict(edit(OnCanvas(editor, RULES["kontext"]), ramp).record)
    assert record == {"canvas": [672, 1568], "box": [74, 0, 596.667, 1568], "scale": 1.742222, "filter": "lanczos", "padded": 0.2222}
    canvas = np.asarray(editor.seen[0], float)
    assert np.abs(canvas[:, :70, 0]).max() <= 1  # the red of the left edge
    assert np.abs(canvas[:, 600:, 0] - 239).max() <= 1
    inside = canvas[100:-100, 90:580]
    assert np.gradient(inside[..., 0], axis=1).mean() == pytest.approx(0.8 / 1.7422, rel=0.01)
    assert np.gradient(inside[..., 1], axis=0).mean() == pytest.approx(0.25 / 1.7422, rel=0.01)


def test_a_canvas_that_is_a_little_larger_resamples_nothing() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (1000, 1010, 3), np.uint8))
    placed = place(noise.size, (1024, 1024))
    assert placed.record() == (
        ("canvas", [1024, 1024]), ("box", [7, 12, 1017, 1012]), ("scale", 1.0), ("filter", "none"), ("padded", 0.0368),
    )  # fmt: skip
    assert np.array_equal(np.asarray(onto(noise, placed))[12:1012, 7:1017], np.asarray(noise))


def test_failures_pass_and_a_result_of_another_size_stays_as_it_is() -> None:
    class Shrinking(Copying):
        def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
            return [Edited(Image.new("RGB", (10, 20)), '{"a": 1}', (("version", 3),)), Failure("refused", "no")]

    editor = OnCanvas(Shrinking(), qwen)
    small, failure = editor.edit([EditRequest(Image.new("RGB", size), "x", 0) for size in ((64, 64), (100, 100))])
    assert failure == Failure("refused", "no")
    assert isinstance(small, Edited)
    assert (small.image.size, small.metadata) == ((10, 20), '{"a": 1}')
    record = dict(small.record)
    assert (record["version"], record["returned"], record["canvas"]) == (3, [10, 20], [1024, 1024])


@pytest.mark.parametrize("size", [(1, 1), (1, 700), (3000, 1)])
def test_the_smallest_sources_have_a_canvas(size: tuple[int, int]) -> None:
    for rule in RULES.values():
        assert edit(OnCanvas(Copying(), rule), Image.new("RGB", size, "red")).image.size == size
