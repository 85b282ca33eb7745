"""Work and estimated cost of the fine-tuning, arm by arm: steps, pairs, operations, and the disk that encoded pairs take.

Operations are counted on the meta device for a square pair of the configured side (`finetune.estimate`). Encoding, held-out loss and
samples are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pipeline import words
from pipeline.planning.assumptions import PEAK_TFLOPS, UTILISATION
from stages.config import FlowConfig
from stages.datasets.config import WorldEdits
from stages.engine import steps
from stages.engine.rundir import RunDir
from stages.finetune.config import FinetuneConfig, LargeFinetuneConfig


def work(config: FinetuneConfig | LargeFinetuneConfig) -> str:
    """The work in a sentence."""
    if isinstance(config, LargeFinetuneConfig):
        training = config.training
        length = f"{training.steps:,} steps" if training.steps is not None else f"{training.epochs:g} epochs"
        kind = "all weights" if training.adapters is None else f"LoRA of rank {training.adapters.rank}"
        amount = f"{len(config.arms)} arms x {length} of {training.batch_size} pairs"
        return f"{config.editor.family}: {amount}, {kind}, {config.workers} workers"
    return (
        f"base {config.base.training.steps:,} steps, then {len(config.arms)} arms x {config.training.steps:,} steps "
        f"of {config.training.batch_size}"
    )


def arm_sizes(flow: FlowConfig, run: RunDir) -> dict[str, int | None]:
    """Pairs of every arm: of the filtered data where there are any, else as the configuration says; None where it does not."""
    assert flow.finetune is not None
    index = run.step(steps.FILTER).index() if run.path.exists() else None
    if index is not None:
        made = index.results["selections"]
        return {arm: made[arm]["count"] if arm in made else None for arm in flow.finetune.arms}
    selections = {} if flow.filter is None else {choice.name: choice for choice in flow.filter.selections}
    edits = flow.filter.input if flow.filter is not None else None
    total = edits.count if isinstance(edits, WorldEdits) else None
    found: dict[str, int | None] = {}
    for arm in flow.finetune.arms:
        choice = selections.get(arm)
        if choice is None or choice.threshold is not None or choice.quantile is not None or choice.at_most is not None:
            found[arm] = None
        elif choice.count is not None:
            found[arm] = choice.count
        elif choice.fraction is not None or choice.rule == "all":
            found[arm] = None if total is None else round(total * (choice.fraction or 1))
        else:
            found[arm] = None
    return found


def table(config: LargeFinetuneConfig, sizes: Mapping[str, int | None]) -> str:
    """Cost of every arm, and the disk."""
    training, side = config.training, config.editor.sampling.side
    per_pair = _flop(config.model_dump_json())
    rows, hours_in_all = [], 0.0
    for arm, pairs in sizes.items():
        if pairs is not None and pairs < training.batch_size:
            rows.append([arm, f"{pairs:,}: fewer than a batch", "", "", "", ""])
            continue
        if training.steps is None and pairs is None:
            rows.append([arm, "known after filter", "", "", "", ""])
            continue
        count = training.steps_for(pairs or 0)
        flop = per_pair * count * training.batch_size
        hours = flop / (PEAK_TFLOPS * UTILISATION * 1e12) / 3600
        hours_in_all += hours
        epochs = f"{count * training.batch_size / pairs:.2f}" if pairs else ""
        size = "known after filter" if pairs is None else f"{pairs:,}"
        rows.append([arm, size, f"{count:,}", epochs, f"{flop:.2e}", f"{hours:,.1f}"])
    header = ["arm", "pairs", "steps", "epochs", "FLOP", "GPU hours"]
    about = (
        f"finetune, an estimate: {per_pair:.2e} FLOP per pair of {side} x {side} pixels (counted, with what is "
        f"computed again),\n{UTILISATION:.0%} of {PEAK_TFLOPS:.0f} TFLOP/s per GPU; {hours_in_all:,.1f} GPU hours for all arms that are "
        f"counted\n{disk(config, sizes)}\n"
    )
    return about + words.text_table(header, rows)


def disk(config: LargeFinetuneConfig, sizes: Mapping[str, int | None]) -> str:
    """What the encoded pairs take, in a sentence."""
    from finetune.estimate import bytes_per_pair

    each = bytes_per_pair(config.editor, config.editor.sampling.side)
    known = [count for count in sizes.values() if count is not None]
    kept = f"encoded pairs take about {words.size(each)} each, null conditions included"
    if len(known) < len(sizes) or not known:
        return kept
    least, most = max(known) * each, sum(known) * each
    return f"{kept}: {words.size(least)} where the largest arm has all pairs of the others, at most {words.size(most)}"


@lru_cache(maxsize=4)
def _flop(config_json: str) -> float:
    from finetune.estimate import flop_per_pair

    config = LargeFinetuneConfig.model_validate_json(config_json)
    return flop_per_pair(config.editor, config.editor.sampling.side, config.training)
