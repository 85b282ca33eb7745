"""Training an editor on edited pairs: the editor's objective, its batches, and the shared optimisation loop.

In: an editor, samples in memory, a configuration, a folder for checkpoints. Out: a new editor with averaged weights.
An objective is a function of (module, step) that computes this worker's terms of the loss; another one needs no other loop. Images are
encoded once, before the first step, so a step works on latents. Workers, precision, averages, checkpoints: `reward.trainer.loop`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from finetune.config import EditorTrainingConfig
from finetune.data import EditSamples
from finetune.editor import Editor, seeded
from finetune.rectified_flow import flow_loss, interpolate, shift_time
from reward.trainer.loop import LossTerms, Metrics, Objective, accumulate, optimise, torch_threads
from reward.trainer.order import batch_order
from reward.trainer.sharding import sharded_copy
from reward.trainer.workers import rank_share

BLOCK_LISTS = ("denoiser.transformer.transformer_blocks", "denoiser.transformer.single_transformer_blocks")
"""Parts of an editor that `parallel: fsdp` shards block by block."""


def train(
    *,
    editor: Editor,
    samples: EditSamples,
    config: EditorTrainingConfig,
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
) -> Editor:
    """Train a copy of `editor` on `samples` and return it with exponentially averaged weights; `editor` is not changed.

    on_metrics receives {"step", "loss", "gradient_norm", "learning_rate"} every `report_every` steps and after the last, the loss being
    the mean since the report before. It is called in every worker. When training resumes, the reports of the finished part are
    repeated first, so that each call of `train` delivers the whole curve.
    With `parallel: fsdp` and several workers only the first worker's editor has weights; checkpoint_dir is one that all workers see.
    ValueError if there are no samples or fewer per batch than workers, if `checkpoint_dir` contains checkpoints of another training, or if
    the loss is no longer finite.
    """
    if not len(samples):
        raise ValueError("there are no samples to train on")
    trained = copy.deepcopy(editor)
    if config.activation_checkpointing:
        trained.denoiser.transformer.enable_gradient_checkpointing()
    task = _digest(trained, samples, config)
    with (
        torch_threads(config.threads),
        sharded_copy(trained, parallel=config.parallel, precision=config.precision, block_lists=BLOCK_LISTS) as learner,
    ):
        optimise(
            module=learner,
            parameter_groups=[{"params": list(learner.parameters()), "lr": config.learning_rate}],
            config=config,
            steps=config.steps,
            warmup_steps=config.warmup_steps,
            objective=flow_matching(learner, samples, config),
            task=task,
            checkpoint_dir=checkpoint_dir,
            report_every=config.report_every,
            report_means=True,  # the loss of one batch depends on the times that were drawn
            on_metrics=on_metrics,
        )
    trained.denoiser.transformer.disable_gradient_checkpointing()
    return trained.eval()


def flow_matching(editor: Editor, samples: EditSamples, config: EditorTrainingConfig) -> Objective:
    """Mean squared error of the velocity (`finetune.rectified_flow`), at random times, over the batch of a step.

    Samples, times and noise of a step are functions of (seed, step). Every worker draws those of the whole batch and uses its rows.
    """
    edited, source = editor.codec.encode(samples.edited), editor.codec.encode(samples.source)  # [n, tokens, channels]
    word_ids = editor.vocabulary.encode(samples.instructions).to(editor.device)  # [n, words]
    order = batch_order(len(samples), config.batch_size, lambda epoch: seeded("order", config.seed, epoch))
    per_pass = max(1, config.token_budget // (word_ids.shape[1] + len(editor.denoiser.positions)))

    def one_pass(module: nn.Module, rows: Tensor, time: Tensor, noise: Tensor) -> LossTerms:
        x0 = edited[rows]
        predicted = module(interpolate(x0, noise, time), time, source[rows], word_ids[rows])
        loss = flow_loss(predicted, x0, noise) * (len(rows) / config.batch_size)  # the terms of all passes add up to the batch's mean
        return loss, {"loss": loss}

    def objective(module: nn.Module, step: int) -> LossTerms:
        generator = seeded("flow", config.seed, step)  # on the CPU, so that every device gets the same numbers
        time = shift_time(torch.rand(config.batch_size, generator=generator), editor.config.objective.time_shift)  # [batch]
        noise = torch.randn(config.batch_size, *edited.shape[1:], generator=generator)  # [batch, tokens, channels]
        mine = torch.tensor(rank_share(list(range(config.batch_size))))
        drawn = [values[mine].to(edited.device).split(per_pass) for values in (torch.tensor(order(step)), time, noise)]
        return accumulate(module, [partial(one_pass, module, *part) for part in zip(*drawn, strict=True)])

    return objective


def _digest(editor: Editor, samples: EditSamples, config: EditorTrainingConfig) -> str:
    """Hash of everything that determines the result of a training."""
    deciding = config.model_dump_json(exclude={"checkpoint_every", "keep_checkpoints", "threads"})
    digest = hashlib.sha256(deciding.encode())
    digest.update(editor.config.model_dump_json(exclude={"sampler"}).encode())
    digest.update("\n".join([*editor.vocabulary.words, *samples.sample_ids, *samples.instructions]).encode())
    for images in (samples.source, samples.edited):
        digest.update(images.tobytes())
    for tensor in editor.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
