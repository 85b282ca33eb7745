"""`pipeline rehearse`: what a configuration's training and scoring do at full size, as text, from runs on the meta device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import words
from pipeline.planning import inputs
from reward.config import TOKEN_BUDGET
from reward.rehearsal.rehearse import INSTRUCTION_WORDS, rehearse_scoring, rehearse_training
from reward.training.batches import batch_size, total_steps
from stages.config import FlowConfig

if TYPE_CHECKING:
    from reward.rehearsal.rehearse import Figures, ScoringRehearsal, TrainingRehearsal


@dataclass(frozen=True)
class Hardware:
    """What hours and costs are computed for. efficiency: share of the peak that the model gets (MFU); price: of a GPU hour, if known."""

    ranks: int
    peak_tflops: float
    efficiency: float
    price: float | None

    def hours(self, flop: float) -> float:
        """GPU hours of so many operations."""
        return flop / (self.peak_tflops * 1e12 * self.efficiency) / 3600


def report(flow: FlowConfig, hardware: Hardware) -> str:
    """The rehearsal as text. Raises RehearsalError for a fault, naming its place, ValueError where the model's sizes are unknown."""
    model = flow.reward.model
    budget = TOKEN_BUDGET if flow.filter is None else flow.filter.token_budget
    scoring = rehearse_scoring(model, sources=math.ceil(budget / 2), candidates=1, token_budget=budget)
    side = math.ceil(math.sqrt(model.presentation.image_area))
    lines = [
        f"model: {model.backbone.pretrained or 'random weights'}, {scoring.parameters:,} parameters; sizes from {scoring.sizes_from}",
        f"text: {scoring.text_from}; instructions of {INSTRUCTION_WORDS} words; images: {side} x {side} pixels",
    ]
    if flow.generate is None:
        lines.append("training: not rehearsed, no section generate")
    else:
        lines += ["", *_training(flow, flow.generate.annotate, hardware)]
    lines += ["", *_scoring(scoring, budget, hardware)]
    lines += ["", f"hours assume {hardware.efficiency:.0%} of {hardware.peak_tflops:g} TFLOP/s per GPU (--efficiency, --peak-tflops)"]
    if hardware.price is None:
        lines.append("cost: unknown; give --price, the price of a GPU hour")
    lines.append("not run: the optimizer, the exchange between ranks, decoding; kernels are dispatched operations, some launch several")
    return "\n".join(lines)


def _training(flow: FlowConfig, candidates: int, hardware: Hardware) -> list[str]:
    config, ranks = flow.reward.training, hardware.ranks
    step = rehearse_training(flow.reward.model, config, flow.reward.loss, candidates=candidates, ranks=ranks)
    kind = "groups" if config.pairs_per_batch is None else "pairs"
    recomputed = "with" if config.activation_checkpointing else "without"
    title = (
        f"training step of one of {ranks} ranks: {step.groups} of {batch_size(config)} {kind}, {config.adapter}, {config.precision}, "
        f"{config.parallel}, {recomputed} activation checkpointing; {step.learning:,} parameters learn"
    )
    rows = _rows({"forward": step.forward, "forward and backward": step.whole}, step.groups, kind[:-1])
    memory = [[words.name(name), words.size(size)] for name, size in vars(step.memory).items() if size]
    memory.append(["total", words.size(step.memory.total)])
    tables = [words.text_table(["", "forward", "forward and backward"], rows), "", words.text_table(["memory per GPU", ""], memory)]
    return [title, *tables, "", *_run(flow, step, candidates, hardware)]


def _run(flow: FlowConfig, step: TrainingRehearsal, candidates: int, hardware: Hardware) -> list[str]:
    """The whole training: steps, hours, cost; and its validations, which the ranks share."""
    config, loss = flow.reward.training, flow.reward.loss
    counted = inputs.sources(flow)
    if counted is None:
        return ["whole training: unknown, because the sources cannot be counted"]
    groups, held_out = counted
    count = groups if config.pairs_per_batch is None else groups * math.comb(candidates, 2)
    steps = total_steps(config, count)
    training = hardware.hours(step.whole.flop * hardware.ranks * steps)
    group = rehearse_scoring(flow.reward.model, sources=1, candidates=candidates, token_budget=1).figures.flop
    validations = math.ceil(steps / config.validate_every)
    validation = hardware.hours(group * held_out * validations)
    shown = [
        ("training", f"{steps:,} steps, {loss.kind}", training),
        ("validation", f"{validations:,} times {held_out:,} groups", validation),
        ("both", "", training + validation),
    ]
    rows = [
        [name, what, f"{hours:,.1f}", words.duration(hours / hardware.ranks * 3600), _price(hours, hardware)] for name, what, hours in shown
    ]
    return [words.text_table(["whole training", "", "GPU hours", "wall time", "cost"], rows)]


def _scoring(scoring: ScoringRehearsal, budget: int, hardware: Hardware) -> list[str]:
    figures = scoring.figures
    weights = 2 * scoring.parameters
    hours = hardware.hours(figures.flop / figures.edits) * 1e6
    rows = _rows({"forward": figures}, figures.edits, "edit")
    rows += [
        ["weights, bytes", words.size(weights)],
        ["activations, bytes", words.size(figures.peak)],
        ["GPU hours per million edits", f"{hours:,.1f}"],
        ["cost per million edits", _price(hours, hardware)],
    ]
    return [f"scoring pass of {budget:,} tokens at most, one edit per source, bf16", words.text_table(["", "forward"], rows)]


def _rows(columns: dict[str, Figures], units: int, unit: str) -> list[list[str]]:
    """units: groups, pairs or edits of the passes; unit: one of them in words."""
    shown = {
        "passes": lambda figures: f"{figures.passes:,}",
        "edits": lambda figures: f"{figures.edits:,}",
        f"tokens per {unit}": lambda figures: f"{figures.tokens / units:,.0f}",
        f"image patches per {unit}": lambda figures: f"{figures.patches / units:,.0f}",
        f"TFLOP per {unit}": lambda figures: f"{figures.flop / units / 1e12:,.4g}",
        "TFLOP": lambda figures: f"{figures.flop / 1e12:,.4g}",
        "kernels, at least": lambda figures: f"{figures.kernels:,}",
    }
    return [[name, *(form(figures) for figures in columns.values())] for name, form in shown.items()]


def _price(hours: float, hardware: Hardware) -> str:
    return "unknown" if hardware.price is None else f"{hours * hardware.price:,.0f}"
