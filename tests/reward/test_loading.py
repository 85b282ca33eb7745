"""Groups prepared ahead of the model: order, errors in their turn, what is kept in memory."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_model import BACKBONE

from reward import RatedGroup, RewardModel, SampleError
from reward.config import HeadConfig, PresentationConfig, RewardModelConfig
from reward.evaluation.evaluate import predict, predict_groups
from reward.inputs.batch import PreparedSample
from reward.inputs.loading import GroupLoader

CONFIG = RewardModelConfig(backbone=BACKBONE, presentation=PresentationConfig(image_area=256), heads=HeadConfig(hidden=(8,)))


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def group(number: int) -> RatedGroup:
    edits = (picture(2 * number), picture(2 * number + 1))
    return RatedGroup(f"s{number}", picture(1000 + number), "make it red", (f"{number}a", f"{number}b"), edits, ({}, {}), ())


GROUPS = [group(number) for number in range(8)]
WANTED = [[3, 1], [7], [0, 3, 5], [2]]


@pytest.fixture(scope="module")
def model() -> RewardModel:
    return RewardModel.from_config(CONFIG, ["make it red"]).eval()


def contents(batches: Iterator[list[PreparedSample]]) -> list[list[tuple[str, ...]]]:
    return [[item.contents for item in batch] for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_as_they_are_wanted(model: RewardModel, workers: int) -> None:
    alone = [model.prepare(source=g.source, candidates=g.candidates, instruction=g.instruction).contents for g in GROUPS]
    loader = GroupLoader(model.processor, GROUPS, workers=workers, cache_bytes=7000)  # two groups
    for _ in range(2):
        assert contents(loader.batches(WANTED)) == [[alone[index] for index in batch] for batch in WANTED]
    assert [item.contents for item in loader.in_order()] == alone


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_its_turn_and_names_the_group(model: RewardModel, workers: int) -> None:
    damaged = [*GROUPS[:3], RatedGroup(**{**vars(GROUPS[3]), "candidates": (b"not an image", picture(0))})]
    batches = GroupLoader(model.processor, damaged, workers=workers).batches([[0], [1, 2], [3], [0]])
    assert len(next(batches)) + len(next(batches)) == 3
    with pytest.raises(
        SampleError, match=r"^group s3: edited image of 12 bytes cannot be decoded \([^\n]*\); expected a whole image file$"
    ):
        next(batches)


def test_paths_are_read_when_they_are_needed(model: RewardModel, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    lying = RatedGroup(**{**vars(GROUPS[0]), "source": paths[0], "candidates": (paths[1], str(paths[2]))})
    for path, data in zip(paths, (GROUPS[0].source, *GROUPS[0].candidates), strict=True):
        assert isinstance(data, bytes)
        path.write_bytes(data)
    one, other = (predict_groups(model=model, groups=[found], loader_workers=n) for found, n in ((GROUPS[0], 0), (lying, 1)))
    assert np.array_equal(one[0].mean, other[0].mean)


def test_prediction_holds_the_images_of_about_one_pass(model: RewardModel) -> None:
    alive: list[weakref.ref[PreparedSample]] = []
    most = 0

    def counted() -> Iterator[PreparedSample]:
        nonlocal most
        for item in GroupLoader(model.processor, GROUPS).in_order():
            alive.append(weakref.ref(item))
            most = max(most, sum(found() is not None for found in alive))
            yield item

    assert len(predict(model=model, prepared=counted(), token_budget=1)) == len(GROUPS)  # one group a pass
    assert most <= 4
