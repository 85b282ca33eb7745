"""Values published for real ratings, reproduced from them within the tolerances that come with the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.benchmarks import imagenhub
from reward.benchmarks.ratings import averages, rater_correlations, spearman

NAN = float("nan")


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data / "published.json").read_text())


def test_published_correlations_of_a_judge(shared_data: Path, published: dict[str, Any]) -> None:
    """Sub-scores of 0 to 10 are combined as sqrt(SC * PQ) / 10 (VIEScore); an image without a judgement gets the median."""
    stored = json.loads((shared_data / "imagenhub" / "viescore_scores.json").read_text())["gemini_0shot"]
    expected = published["viescore_notebook_gemini_0shot_SC_PQ_O"]
    assert len(expected) == 6
    for task, figures in expected.items():
        panel = imagenhub.read_ratings(shared_data / "imagenhub" / task)
        found: list[list[float]] = [[], [], []]
        for editor, parts in stored[task].items():
            human = np.stack([subscores(raters) for raters in panel[editor].values()]).mean(axis=-1)  # [item, part]
            given = [[parts[part].get(uid, NAN) for part in ("SC", "PQ")] for uid in panel[editor]]
            worst = np.array([[np.clip(np.min(value), 0, 10) for value in values] for values in given], dtype=float)
            worst[np.isnan(worst).any(axis=1)] = NAN
            judged = [*worst.T, np.sqrt(worst.prod(axis=1)) / 10]
            for part, (predicted, rated) in enumerate(zip(judged, human.T, strict=True)):
                found[part].append(spearman(predicted, rated))
        assert [averages(rhos)["tanh_of_mean"] for rhos in found] == pytest.approx(figures, abs=1.5e-3), task


def test_published_correlations_between_people(shared_data: Path, published: dict[str, Any]) -> None:
    panel = imagenhub.read_ratings(shared_data / "imagenhub" / "ImagenHub_Mask-Guided_IE")
    for editor, figures in published["viescore_notebook_human_to_human_Mask-Guided_IE_SC_PQ_O"].items():
        rated = np.stack([subscores(raters) for raters in panel[editor].values()])  # [item, part, rater]
        found = [averages(rater_correlations(rated[:, part]))["tanh_of_mean"] for part in range(3)]
        assert found == pytest.approx(figures, abs=2e-3), editor


def subscores(raters: np.ndarray) -> np.ndarray:
    """[rater, 2] with SC and PQ -> [3, rater] with SC, PQ and overall."""
    return np.stack([raters[:, 0], raters[:, 1], np.sqrt(raters.prod(axis=1))])
