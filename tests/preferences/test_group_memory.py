"""What a rank holds of its groups does not depend on how large their images are."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import rated_run
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from reward.inputs.decoding import encoded
from stages.annotate import step as annotate
from stages.context import Context
from stages.engine import stored_images
from stages.preferences import step as preferences
from stages.preferences.groups import load_groups

GROUPS = 20


def rated(path: Path, image_bytes: int) -> Context:
    """A run of 20 rated groups with 7 images of this size each; they are noise, since nothing decodes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rated_run, "_picture", lambda _, number, place: np.random.default_rng(1000 * number + place).bytes(image_bytes))
        context = make_run(path, groups=GROUPS)
    annotate.ingest(context, [write_csv(path / "ratings.csv", ratings_of(rating_task_of(context)))])
    preferences.run(context)
    return context


def held(context: Context) -> tuple[int, int]:
    """Bytes of Python that the training groups of a run hold, and the most that Arrow allocated while they were loaded."""
    load_groups(context.run, "train")  # imports
    before, counting = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counting)
    gc.collect()
    tracemalloc.start()
    try:
        groups = load_groups(context.run, "train")
        gc.collect()
        return tracemalloc.get_traced_memory()[0], counting.max_memory() or 0
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
        assert len(groups) == GROUPS * 4 / 5


def test_groups_hold_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = rated(tmp_path / "small", 100), rated(tmp_path / "large", 50_000)
    (python, arrow), (python_large, arrow_large) = held(small), held(large)
    images = GROUPS * 7 * 50_000
    assert python_large < python + 0.01 * images and arrow_large < arrow + 0.01 * images
    group = load_groups(large.run, "train")[3]
    monkeypatch.setattr(stored_images, "_NEWEST", stored_images._RowGroups(0))
    table = large.run.step("generate").read("candidates", ["candidate_id", "image"]).to_pylist()
    wanted = {row["candidate_id"]: row["image"]["bytes"] for row in table}
    assert [encoded(image) for image in group.candidates] == [wanted[name] for name in group.candidate_ids]
