"""Training an editing model on encoded pairs, with the shared optimisation loop (`reward.trainer.loop`).

In: a model (`finetune.editing_model`), stored pairs, a folder for checkpoints. Out: the same model, trained. Pairs are read step by step,
so memory does not grow with their number. What a step takes and draws is a function of the seed and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from finetune.adapters import add_adapters
from finetune.config import RectifiedFlowConfig, SamplingConfig
from finetune.training.blocks import prepared_blocks
from finetune.training.config import LargeTrainingConfig
from finetune.training.loading import PairLoader
from finetune.training.objective import flow_objective
from finetune.training.order import bucketed_order
from finetune.training.pairs import StoredPairs
from finetune.training.progress import OnSamples, Progress
from reward.trainer.loop import Metrics, optimise, torch_threads
from reward.trainer.sharding import ReadRows, sharded_copy
from reward.trainer.workers import rank_and_world


def train(
    *,
    model: nn.Module,
    base: str,
    pairs: StoredPairs,
    held_out: StoredPairs,
    flow: RectifiedFlowConfig,
    config: LargeTrainingConfig,
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
    on_samples: OnSamples,
    sampling: SamplingConfig,
    device: torch.device,
    stored: Mapping[str, ReadRows] | None = None,
) -> None:
    """Train `model` in place, an `EditingModel` on `device`; adapters stay in it.

    base: identity of its weights before. stored: what reads them where they are on the meta device (`will_shard`). on_metrics receives
    {"step", "loss", "gradient_norm", "learning_rate"}, the loss being the mean since the report before, and `held_out` losses where they
    are due; after a resume the finished part first. on_samples receives a step and latents of held-out edits by the number of their pair,
    each on one worker, sampled as `sampling` says. With `parallel: fsdp` and several workers only the first worker's model has weights in
    the end.
    ValueError for fewer pairs than a batch, a batch that the workers do not divide, checkpoints of another training, a pair that is not
    what was written, or a loss that is no longer finite.
    """
    check_batches(config, pairs=len(pairs.bucket_of), workers=rank_and_world()[1])
    steps = config.steps_for(len(pairs.bucket_of))
    ready_to_learn(model, config, device)
    sharded = sharded_copy(
        model,
        parallel=config.parallel,
        precision=config.precision,
        block_lists=cast(Any, model).block_lists,
        stored=stored,
        device=device,
    )
    with sharded as learner, torch_threads(config.threads):
        editing: Any = learner
        shift = cast(Any, model).resolution_shift
        loader = PairLoader(
            pairs,
            bucketed_order(pairs.bucket_of, config.batch_size, config.seed),
            flow,
            shift,
            seed=config.seed,
            workers=config.loader_workers,
        )
        progress = Progress(editing, held_out, config.progress, sampling, config.precision)

        def report(metrics: Metrics) -> None:
            on_metrics(metrics)
            if progress.samples:
                on_samples(int(metrics["step"]), progress.taken())

        with closing(loader), prepared_blocks(editing, recompute=config.activation_checkpointing, compiled=config.compile):
            optimise(
                module=learner,
                parameter_groups=[{"params": [weight for weight in learner.parameters() if weight.requires_grad]}],
                config=config,
                steps=steps,
                warmup_steps=config.warmup_steps,
                objective=flow_objective(editing, loader, batch_size=config.batch_size, pairs_per_pass=config.pairs_per_pass),
                task=task(config, flow, base, pairs, held_out),
                checkpoint_dir=checkpoint_dir,
                report_every=config.report_every,
                unused=True,  # the last blocks of some families compute what nothing reads
                keep_frozen=False,
                report_means=True,  # the loss of one batch depends on the times that were drawn
                on_metrics=report,
                validate=progress.measure if len(held_out.bucket_of) else None,
                validate_every=config.progress.every,
            )


def check_batches(config: LargeTrainingConfig, *, pairs: int, workers: int) -> None:
    """Raise ValueError where the batches cannot be made."""
    if config.batch_size % workers:
        raise ValueError(f"a batch of {config.batch_size} pairs cannot be divided among {workers} workers; change batch_size or workers")
    if pairs < config.batch_size:
        raise ValueError(f"there are {pairs} pairs, fewer than batch_size {config.batch_size}; lower it, or select more pairs")


def ready_to_learn(model: nn.Module, config: LargeTrainingConfig, device: torch.device) -> None:
    """Put adapters into the blocks, or let all weights learn. What learns is float32; frozen weights are bf16 where that is the precision
    and where they are not sharded, since a shard has one type.
    """
    editing: Any = model
    if config.adapters is None:
        model.float().requires_grad_(True)
    else:
        if config.precision == "fp32" or config.parallel == "fsdp":
            model.float()
        add_adapters(model, config.adapters, config.adapter_layout, seed=config.seed, device=device)
    if config.connector:
        if editing.connector_name is None:
            raise ValueError(f"{type(model).__name__} has no connector to train; leave connector out")
        model.get_submodule(editing.connector_name).requires_grad_(True)
    for name in editing.idle_layers:
        model.get_submodule(name).requires_grad_(False)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


def task(config: LargeTrainingConfig, flow: RectifiedFlowConfig, base: str, pairs: StoredPairs, held_out: StoredPairs) -> str:
    """Everything that determines the result of a training, as text."""
    deciding = config.model_dump_json(exclude={"checkpoint_every", "keep_checkpoints", "threads", "loader_workers"})
    return "\n".join(("editing model", deciding, flow.model_dump_json(), base, pairs.identity, held_out.identity))
