"""`pipeline plan`: the state, the work and the estimated cost of every step, before anything runs.

Compute comes from `pipeline.planning.compute`.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.flow import STEPS
from pipeline.planning import editor_benchmark, editors, filter_cost, finetune_cost, inputs, selection_sizes
from pipeline.planning.assumptions import PEAK_TFLOPS, UTILISATION
from pipeline.planning.compute import Compute, compute_of, tokens
from pipeline.words import text_table
from reward.config import RewardModelConfig
from reward.training.batches import batch_size, total_steps
from stages.config import FlowConfig
from stages.datasets.config import WorldEdits
from stages.engine import storage
from stages.engine.rundir import Index, RunDir
from stages.finetune.config import LargeFinetuneConfig
from stages.generate.candidate_plan import counts_of

SUSTAINED_TFLOPS = PEAK_TFLOPS * UTILISATION
"""Assumed for GPU hours: 40 % of the 312 TFLOP/s that an A100 or A800 does in bf16."""
SECONDS_PER_GROUP = (75, 150)
"""Assumed time of one annotator for a group of seven."""


def plan(flow: FlowConfig, path: Path) -> str:
    """The plan as text."""
    work = _work(flow, path)
    missing = inputs.missing(flow)
    manifest = RunDir(path).manifest().get("steps", {}) if path.exists() else {}
    rows = []
    for number, step in enumerate(STEPS, start=1):
        if getattr(flow, step.section) is None:
            rows.append([str(number), step.name, "left out", f"no section {step.section}", ""])
            continue
        state = _state(flow, RunDir(path).step(step.name).index(), input_missing=step.name in missing)
        last = f"took {manifest[step.name]['seconds']} s" if step.name in manifest else ""
        rows.append([str(number), step.name, state, work[step.name], last])
    notes = [note for of_step in missing.values() for note in of_step] + _assumptions(flow)
    text = f"run directory: {path}\n\n" + text_table(["", "step", "state", "work", "last time"], rows)
    text += "\n\n" + "\n".join(f"- {note}" for note in notes) if notes else ""
    if flow.generate is not None and flow.generate.editors and (groups := inputs.sources(flow)) is not None:
        with suppress(ValueError):  # the notes say what is wrong with the editors
            text += "\n\n" + editors.table(flow, sum(groups), RunDir(path).step("generate"))
    if flow.filter is not None:
        flop, counted = flop_per_pair(flow)
        if flop is None:
            text += f"\n\nfilter at other sizes: unknown ({counted})"
        else:
            text += "\n\n" + filter_cost.table(flow.filter, flop, counted)
    if isinstance(flow.finetune, LargeFinetuneConfig):
        text += "\n\n" + finetune_cost.table(flow.finetune, finetune_cost.arm_sizes(flow, RunDir(path)))
    return text


def flop_per_pair(flow: FlowConfig) -> tuple[float | None, str]:
    """FLOP to score one pair with the filter's model, None where they are unknown, and a description of the counted model.

    A saved model is counted from its weights without the embeddings, anything else as ``reward.model`` of the configuration.
    """
    assert flow.filter is not None
    model = flow.reward.model
    if flow.filter.model is None:
        found = _compute(flow)
        return found.edit, "reward.model" if found.edit is not None else found.method
    folder = Path(flow.filter.model)
    if not (folder / "config.json").exists() or not (folder / "model.safetensors").exists():
        return None, f"{folder} contains no saved model"
    from safetensors import SafetensorError, safe_open

    try:
        model = RewardModelConfig.model_validate(storage.read_json(folder / "config.json")["reward_model"])
        with safe_open(folder / "model.safetensors", framework="numpy") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys() if "embed_tokens" not in name]  # noqa: SIM118
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(f"filter.model: {folder} is not a readable reward model ({str(error).splitlines()[0]})") from None
    return 2.0 * sum(math.prod(shape) for shape in shapes) * tokens(model, 1), str(folder)


def _state(flow: FlowConfig, index: Index | None, *, input_missing: bool) -> str:
    """Whether a step is done, to do, or to redo because settings have changed since."""
    if index is None:
        return "input missing" if input_missing else "to do"
    now = flow.model_dump(mode="json")
    changed = [name for section, then in index.settings.items() if section in now for name in _changed(then, now[section], section)]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"to redo: {changed[0]}{more} changed" if changed else "done"


def _changed(then: Any, now: Any, name: str) -> list[str]:
    """Names of the settings whose values differ. Settings that the step does not depend on are not in ``then``."""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [
            found for index, (one, other) in enumerate(zip(then, now, strict=True)) for found in _changed(one, other, f"{name}.{index}")
        ]
    if not isinstance(then, dict) or not isinstance(now, dict):
        return [] if then == now else [name]
    return [found for key, value in then.items() for found in _changed(value, now.get(key), f"{name}.{key}")]


def _compute(flow: FlowConfig) -> Compute:
    """Of the configuration's reward model. Where nothing is annotated, the size of a group is of no consequence."""
    return compute_of(flow.reward.model, flow.reward.training, 2 if flow.generate is None else flow.generate.annotate)


def _work(flow: FlowConfig, path: Path) -> dict[str, str]:
    """Work of every step, in words."""
    work = dict.fromkeys((step.name for step in STEPS if step.section == "generate"), "unknown: the sources cannot be counted")
    counted = None if flow.generate is None else inputs.sources(flow)
    if flow.generate is not None and counted is not None:
        flop = _compute(flow)
        train, validation = counted
        groups, annotated = train + validation, flow.generate.annotate
        edits = "unknown: the numbers of candidates do not fit together"
        with suppress(ValueError):
            made = sum(counts_of(flow.generate))
            edits = f"{groups:,} sources x {made} candidates = {groups * made:,} edits, {annotated} of each annotated"
        if flow.generate.candidates is not None:
            edits = f"{inputs.candidates(flow):,} candidates made elsewhere, up to {annotated} of each source annotated"
        pairs = groups * math.comb(annotated, 2)
        hours = [groups * seconds / 3600 for seconds in SECONDS_PER_GROUP]
        people = "simulated raters" if flow.annotate.simulate else _hours_of_people(*hours)
        training = flow.reward.training
        kind, count, size = ("groups", train, annotated)
        if training.pairs_per_batch is not None:
            kind, count, size = ("pairs", train * math.comb(annotated, 2), 2)
        steps = total_steps(training, count)
        seen = steps * batch_size(training)
        work |= {
            "generate": edits,
            "annotate": f"{groups * annotated * 2:,} ratings; {people}",
            "preferences": f"{pairs:,} pairs",
            "train-reward": f"{steps:,} steps of {batch_size(training)} {kind}: {seen * size:,} edits, {_cost(flop.trained, seen)}",
            "evaluate-reward": f"{validation * annotated:,} held-out edits, {_cost(flop.group, validation)}",
        }
    if flow.filter is not None:
        source = flow.filter.input
        count = source.count if isinstance(source, WorldEdits) else None
        one = flop_per_pair(flow)[0]
        amount = (
            f"{count:,} edits, {_cost(one, count)}"
            if count
            else f"the edits at {getattr(source, 'path', '')}, {_cost(one, 1000)} per 1,000"
        )
        kept = selection_sizes.described(flow.filter.selections, RunDir(path).step("filter"))
        work["filter"] = f"{amount}, {filter_cost.order(flow.filter)}; selections: {kept}"
    if flow.finetune is not None:
        fine = flow.finetune
        work["finetune"] = finetune_cost.work(fine)
    if flow.evaluate_editor is not None:
        work["evaluate-editor"] = editor_benchmark.described(flow)
    return work


def _hours_of_people(least: float, most: float) -> str:
    return f"{least:,.0f} to {most:,.0f} hours of annotators" if least >= 1 else f"at most {math.ceil(most)} h of annotators"


def _cost(flop: float | None, count: int) -> str:
    """flop: of each of ``count``."""
    if flop is None:
        return "FLOP unknown"
    flop *= count
    hours = flop / (SUSTAINED_TFLOPS * 1e12) / 3600
    amount = f"{hours:,.1f} GPU hours" if hours >= 0.05 else "seconds of a GPU"
    return f"{flop:.1e} FLOP ({amount})"


def _assumptions(flow: FlowConfig) -> list[str]:
    """What the figures assume."""
    notes = []
    if flow.generate is not None and flow.generate.candidates is not None:
        notes.append(f"the number of sources assumes {flow.generate.annotate} candidates of each")
    if flow.reward.model.backbone.pretrained:
        notes.append(f"GPU hours assume {SUSTAINED_TFLOPS:.0f} TFLOP/s sustained (40 % of an A100 or A800); FLOP: {_compute(flow).method}")
    return notes
