"""`pipeline rehearse`: what it prints of a configuration, and what it says where it cannot."""

from __future__ import annotations

import re

import pytest
from command import pipeline, refusal
from paths import ROOT

from pipeline.planning.rehearsal import Hardware

DEMO, PAPER = ROOT / "configs" / "demo.yaml", ROOT / "configs" / "paper.yaml"


def test_hours_by_hand() -> None:
    """1.248e14 FLOP take one GPU second at 312 TFLOP/s x 40 %."""
    assert Hardware(ranks=8, peak_tflops=312, efficiency=0.4, price=None).hours(1.248e14) == pytest.approx(1 / 3600)


def test_a_configuration_is_rehearsed_for_a_number_of_ranks_and_a_price() -> None:
    slow = ("--ranks", 2, "--peak-tflops", 1e-6, "--efficiency", 0.5)
    text = pipeline("rehearse", "--config", DEMO, *slow, "--price", 2).output
    assert (
        "training step of one of 2 ranks: 8 of 16 groups, full, fp32, ddp, without activation checkpointing; 337,060 parameters learn"
        in text
    )
    whole = float(re.findall(r"^TFLOP +[\d.]+ +([\d.]+)$", text, re.M)[0])  # of a step of one rank
    hours, cost = re.findall(r"^training +600 steps, uncertainty +([\d,.]+) .* ([\d,]+)$", text, re.M)[0]
    assert float(hours.replace(",", "")) == pytest.approx(whole * 2 * 600 / 0.5e-6 / 3600, rel=1e-3)
    assert float(cost.replace(",", "")) == pytest.approx(2 * float(hours.replace(",", "")), abs=1)
    assert re.search(r"^buckets +1.3 MB$", text, re.M) and re.search(r"^validation +6 times 150 groups ", text, re.M)
    assert "50% of 1e-06 TFLOP/s per GPU (--efficiency, --peak-tflops)" in text


def test_no_price_is_made_up_and_no_size_is() -> None:
    text = pipeline("rehearse", "--config", DEMO, "generate=null").output
    assert "cost: unknown; give --price" in text and "training: not rehearsed, no section generate" in text
    keys = ("reward.model.backbone.pretrained=someone/else-7B",)
    assert "the sizes of someone/else-7B are unknown; name a directory with its config.json" in refusal(
        "rehearse", "--config", PAPER, *keys
    )
    planned = pipeline("plan", "--config", PAPER, *keys).output
    assert "762,656 edits, FLOP unknown" in planned and "filter at other sizes: unknown" in planned
