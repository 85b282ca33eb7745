"""What `pipeline plan` says of a pretrained editor: counted operations, sizes of arms, disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_step1x import SIZES
from torch.utils.flop_counter import FlopCounterMode

from finetune import families
from finetune.config import SamplingConfig
from finetune.estimate import bytes_per_pair, flop_per_pair
from finetune.step1x.config import Step1XConfig
from finetune.training.config import LargeTrainingConfig
from pipeline.planning import finetune_cost
from pipeline.planning.plan import plan
from stages.config import FlowConfig
from stages.engine.rundir import RunDir

BLOCKS = {"double_blocks": 4, "single_blocks": 5}
EDITOR = Step1XConfig(directory="/nowhere", sizes=SIZES.model_copy(update=BLOCKS), sampling=SamplingConfig(side=64))


def test_operations_are_counted_with_what_is_computed_again() -> None:
    model: Any = families.without_weights(EDITOR)
    example = families.example_input(EDITOR, 64, torch.device("meta"))
    latent = torch.zeros(1, *example.latent, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss = model(latent, latent, torch.zeros(1, device="meta"), model.collate([example.condition])).sum()
        forward = counter.get_total_flops()
        loss.backward()
    every_block = counter.get_total_flops()
    assert flop_per_pair(EDITOR, 64, LargeTrainingConfig(adapters=None, activation_checkpointing="none")) == every_block
    ratios = {
        (adapters, again): flop_per_pair(EDITOR, 64, LargeTrainingConfig(adapters=adapters, activation_checkpointing=again)) / forward
        for adapters, again in ((None, "none"), (None, "full"))
    }
    assert ratios[None, "none"] == pytest.approx(3, rel=0.1) and ratios[None, "full"] == pytest.approx(4, rel=0.1)
    rank = {"adapters": {"rank": 1, "alpha": 1}, "activation_checkpointing": "none"}
    adapted = flop_per_pair(EDITOR, 64, LargeTrainingConfig.model_validate(rank)) / forward
    assert 2 < adapted < ratios[None, "none"]  # no gradients of frozen matrices


def test_bytes_of_a_pair_are_those_of_the_released_sizes() -> None:
    """Moments of two images of 16 x 96 x 96, and two conditions of 364 states of 3584, all of two bytes."""
    released = Step1XConfig(directory="/nowhere")
    assert bytes_per_pair(released, 768) == 2 * (2 * 2 * 16 * 96 * 96 + 2 * 364 * 3584)


def test_the_plan_lists_every_arm(tmp_path: Path) -> None:
    selections = [
        {"name": "full", "rule": "all"},
        {"name": "selected", "rule": "top", "count": 40},
        {"name": "certain", "rule": "top", "threshold": 0.5},
        {"name": "few", "rule": "random", "count": 5},
    ]
    section = {
        "editor": EDITOR.model_dump(),
        "arms": ["full", "selected", "certain", "few"],
        "training": {"steps": None, "epochs": 2, "batch_size": 8, "adapters": {"rank": 2, "alpha": 2}},
    }
    filtered = {"input": {"dataset": "world-edits", "count": 100}, "selections": selections}
    flow = FlowConfig.model_validate({"name": "x", "world": {"size": 32}, "filter": filtered, "finetune": section})
    config: Any = flow.finetune
    sizes = finetune_cost.arm_sizes(flow, RunDir(tmp_path / "run"))
    assert sizes == {"full": 100, "selected": 40, "certain": None, "few": 5}
    lines = finetune_cost.table(config, sizes).splitlines()
    cells = {line.split()[0]: line.split() for line in lines if line.split()[0] in sizes}
    assert cells["full"][1:4] == ["100", "25", "2.00"] and cells["selected"][1:4] == ["40", "10", "2.00"]
    flop = [float(cells[arm][4]) for arm in ("full", "selected")]
    assert flop[0] == pytest.approx(2.5 * flop[1], rel=0.02)
    assert " ".join(cells["certain"][1:]) == "known after filter" and " ".join(cells["few"][1:]) == "5: fewer than a batch"
    text = plan(flow, tmp_path / "run")
    assert "step1x-edit-v1.0: 4 arms x 2 epochs of 8 pairs, LoRA of rank 2, 1 workers" in text
    assert "- missing input: /nowhere (finetune.editor.directory)" in text
