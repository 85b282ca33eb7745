"""The step with items and a judge that are not the toy data set's: sizes, failed calls, and what cannot go together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stages.config import FlowConfig
from stages.evaluate_editor import step
from stages.evaluate_editor.items.item import Item

SIDE = 8


def test_images_are_edited_at_the_editors_size_and_judged_at_their_own() -> None:
    seen = []

    def edit(sources: np.ndarray, instructions: list[str], *, sample_ids: list[str]) -> np.ndarray:
        seen.append((sources.shape, instructions, sample_ids))
        return 255 - sources

    editor = SimpleNamespace(config=SimpleNamespace(image_size=SIDE), edit=edit)
    sizes = [(12, 20), (SIDE, SIDE)]
    items = [Item(f"i{n}", np.full((*size, 3), 40 * n, np.uint8), "do", "add", "cn") for n, size in enumerate(sizes)]
    edited = step._edit("base", items, Path("editors"), {"base": editor})
    assert seen == [((2, SIDE, SIDE, 3), ["do", "do"], ["i0", "i1"])]
    assert [image.shape for image in edited] == [(12, 20, 3), (SIDE, SIDE, 3)] and (edited[1] == 215).all()


def test_items_of_the_toy_data_set_need_its_section() -> None:
    flow = FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": 8}})
    assert flow.evaluate_editor is not None and flow.evaluate_editor.model_dump(mode="json")["items"] == 8
    with pytest.raises(ValueError, match="a number draws scenes of the toy data set, but the configuration has no section world"):
        flow.evaluate_editor.items.identity(flow)


@pytest.mark.parametrize("wrong", [{"items": 1}, {"items": {"name": "folder"}}, {"judge": "human"}])
def test_unknown_items_and_judges_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="evaluate_editor"):
        FlowConfig.model_validate({"name": "x", "evaluate_editor": wrong})
