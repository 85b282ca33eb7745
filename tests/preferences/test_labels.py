"""Labels of the pairs artifact and training targets are one mapping in two directions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from reward.inputs.groups import Ties, build_preferences
from stages.annotate.ratings.groups import CompleteGroup
from stages.engine.contracts import DIMENSIONS, table
from stages.preferences import step as preferences
from stages.preferences.groups import RatedRows, label_of, target_of

RULES = st.sampled_from(["opposed", "all", "soft", "off"])


def source(source_id: str) -> dict[str, Any]:
    return {"source_id": source_id, "image": {"bytes": b"", "path": None}, "instruction": "", "task": ""}


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=5), RULES)
def test_preferences_survive_the_pairs_artifact(scores: list[tuple[int, int]], ties: Ties) -> None:
    candidates = tuple(f"c{i}" for i in range(len(scores)))
    group = CompleteGroup("s", candidates, np.array(scores, dtype=float), raters=1)
    rows = table("pairs", preferences.rows(group, DIMENSIONS, ties, split="train")).to_pylist()
    rated = RatedRows()
    for row in rows:
        rated.add(row)
    found = rated.group(source("s"), b"", dict.fromkeys(candidates, b""))
    wanted = build_preferences([dict(zip(DIMENSIONS, map(float, score), strict=True)) for score in scores], DIMENSIONS, ties)
    assert list(found.preferences) == wanted


@pytest.mark.parametrize(
    ("target", "origin"),
    [(1.0, "plain"), (0.0, "plain"), (None, "plain"), (0.5, "tie-soft"), (1.0, "tie-doubled"), (0.0, "tie-disentangled")],
)
def test_a_target_comes_back_from_its_label(target: float | None, origin: str) -> None:
    assert target_of(label_of(target), origin) == target
