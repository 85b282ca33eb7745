"""What a model says of its training, and what is said when it scores images of another domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward import RewardModel, RewardModelConfig
from reward.model.origin import Origin, other_domain, read_origin
from stages.datasets.readers import domain_of

TOY = Origin(domains=("toy",), data={"world": 24}, raters={"people": 2, "simulated": 6}, rated=("2025-01-06", "2025-01-08"))


def test_it_is_saved_loaded_and_on_the_card(tmp_path: Path) -> None:
    model = RewardModel.from_config(RewardModelConfig(), ["make it red"])
    model.save(tmp_path)
    assert read_origin(tmp_path) is None and RewardModel.load(tmp_path).origin is None
    model.origin = TOY
    model.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    for line in (
        "- domain: drawn scenes of the built-in toy data set",
        "- data: world (24 rated groups)",
        "- raters: 2 people, 6 simulated",
        "- rated: 2025-01-06 to 2025-01-08",
    ):
        assert line + "\n" in card
    assert RewardModel.load(tmp_path).origin == TOY
    model.origin = None
    model.save(tmp_path)
    assert not (tmp_path / "origin.json").exists()


@pytest.mark.parametrize(
    "known", [None, TOY.model_copy(update={"domains": ()}), TOY.model_copy(update={"domains": ("photographs", "toy")})]
)
def test_no_warning_without_a_difference(known: Origin | None) -> None:
    assert other_domain(known, "photographs") is None and other_domain(TOY, None) is None and other_domain(TOY, "toy") is None


def test_layouts_that_hold_either_say_nothing() -> None:
    assert {domain_of(name) for name in ("world", "world-edits")} == {"toy"}
    assert {domain_of(name) for name in ("sharegpt4o", "editreward-data", "benchmarks")} == {"photographs"}
    assert {domain_of(name) for name in ("candidates", "webdataset", "reference-json")} == {None}


def test_a_toy_model_on_photographs() -> None:
    assert (other_domain(TOY, "photographs") or "").startswith(
        "the reward model was trained on drawn scenes of the built-in toy data set and scores photographs: "
    )
