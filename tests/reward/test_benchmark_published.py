"""Values published for real ratings and votes, reproduced from them within the tolerances that come with the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reward.benchmarks import genai_bench, imagenhub
from reward.benchmarks.ranks import averages


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data / "published.json").read_text())


def test_published_accuracy_of_judges_on_votes(shared_data: Path, published: dict[str, Any]) -> None:
    votes = json.loads((shared_data / "genaibench_generation_votes.json").read_text())
    human = [row["human_vote"] for row in votes["rows"]]
    accuracy = {judge: round(100 * genai_bench.vote_accuracy(human, given), 2) for judge, given in votes["model_votes"].items()}
    assert accuracy == published["genaibench_generation_accuracy_percent"]


def test_published_correlations_of_a_judge(shared_data: Path, published: dict[str, Any]) -> None:
    stored = json.loads((shared_data / "imagenhub" / "viescore_scores.json").read_text())["gemini_0shot"]
    expected = published["viescore_notebook_gemini_0shot_SC_PQ_O"]
    assert len(expected) == 6
    for task, figures in expected.items():
        panel = imagenhub.read_ratings(shared_data / "imagenhub" / task)
        given = {
            editor: {
                uid: imagenhub.judge_subscores(semantic, parts["PQ"][uid]) for uid, semantic in parts["SC"].items() if uid in parts["PQ"]
            }
            for editor, parts in stored[task].items()
        }
        found = [averages(list(imagenhub.judge_correlations(panel, given, part).values())).tanh_of_mean for part in ("SC", "PQ", "O")]
        assert found == pytest.approx(figures, abs=1.5e-3), task


def test_published_correlations_between_people(shared_data: Path, published: dict[str, Any]) -> None:
    panel = imagenhub.read_ratings(shared_data / "imagenhub" / "ImagenHub_Mask-Guided_IE")
    for editor, figures in published["viescore_notebook_human_to_human_Mask-Guided_IE_SC_PQ_O"].items():
        found = [averages(imagenhub.human_correlations(panel, part)[editor]).tanh_of_mean for part in ("SC", "PQ", "O")]
        assert found == pytest.approx(figures, abs=2e-3), editor
