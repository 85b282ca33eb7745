"""Training an editor by flow matching on edited pairs; a plain torch loop that ends the same however often it is killed.

In: an editor, samples in memory, a configuration, a folder for checkpoints. Out: a new editor with the averaged weights.
Sample order, times and noise of a step are functions of (seed, step), so the step number is all the random state there is.
Images are encoded once, before the first step; a step touches latents only.
Under an initialised torch.distributed group each worker takes its share of every global batch (DistributedDataParallel), the
first writes the checkpoints, and `checkpoint_dir` is read by the first alone.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from finetune.checkpoints import load_checkpoint, save_checkpoint
from finetune.config import EditorTrainingConfig
from finetune.data import EditSamples
from finetune.editor import Editor, seeded
from finetune.objective import flow_loss, interpolate, shift_time


@dataclass
class _Progress:
    """What changes from step to step besides weights and optimiser moments."""

    step: int = 0
    loss_sum: float = 0.0  # since the last report
    reports: list[dict[str, float]] = field(default_factory=list)


def train(
    *,
    editor: Editor,
    samples: EditSamples,
    config: EditorTrainingConfig,
    checkpoint_dir: Path,
    on_metrics: Callable[[dict[str, float]], None],
) -> Editor:
    """Train a copy of `editor` on `samples` and return it with exponentially averaged weights; `editor` is not changed.

    on_metrics receives {"step", "loss", "learning_rate"} every `report_every` steps and after the last, the loss being the mean
    since the report before. It is called in every worker. When training resumes, the reports of the finished part are
    repeated first, so that each call of `train` delivers the whole curve.
    ValueError if the batch cannot be shared by the workers, if `checkpoint_dir` holds checkpoints of another training, or
    if the loss is no longer finite.
    """
    workers = _workers()
    if config.batch_size % workers:
        raise ValueError(f"batch_size ({config.batch_size}) must be a multiple of the {workers} training workers")
    if not len(samples):
        raise ValueError("there are no samples to train on")
    with _threads(config.threads):
        return _train(copy.deepcopy(editor).train(), samples, config, checkpoint_dir, on_metrics)


def _train(
    editor: Editor, samples: EditSamples, config: EditorTrainingConfig, checkpoint_dir: Path, on_metrics: Callable[[dict[str, float]], None]
) -> Editor:
    """The loop itself, on an editor that may be changed."""
    rank, workers = _rank(), _workers()
    identity = _identity(editor, samples, config)
    edited, source = editor.codec.encode(samples.edited), editor.codec.encode(samples.source)  # [n, tokens, channels]
    word_ids = editor.vocabulary.encode(samples.instructions).to(editor.device)  # [n, words]
    weights = list(editor.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True)
    progress = _resume(checkpoint_dir, identity, editor, optimizer, average)
    for report in progress.reports:
        on_metrics(dict(report))
    model: torch.nn.Module = DistributedDataParallel(editor, broadcast_buffers=False) if workers > 1 else editor
    while progress.step < config.steps:
        rows, time, noise = _draw(config, progress.step, len(samples), edited, editor.config.objective.time_shift)
        mine = slice(rank, None, workers)
        rows, time, noise = rows[mine], time[mine], noise[mine]
        x0 = edited[rows]
        predicted = model(interpolate(x0, noise, time), time, source[rows], word_ids[rows])
        loss = flow_loss(predicted, x0, noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, config.clip_norm)
        rate = learning_rate(config, progress.step)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        torch._foreach_lerp_(average, [weight.detach() for weight in weights], 1 - config.ema_decay)
        progress.step += 1
        progress.loss_sum += loss.item()
        last = progress.step == config.steps
        report_due = last or progress.step % config.report_every == 0
        checkpoint_due = last or progress.step % config.checkpoint_every == 0
        if report_due or checkpoint_due:
            progress.loss_sum = _mean_over_workers(progress.loss_sum)
        if report_due:
            _close_window(progress, rate)
        if checkpoint_due and rank == 0:
            state = _state(progress, identity, editor, optimizer, average)
            save_checkpoint(checkpoint_dir, progress.step, state)
        if report_due:
            on_metrics(dict(progress.reports[-1]))
    _assign(weights, average)
    return editor.eval()


def learning_rate(config: EditorTrainingConfig, step: int) -> float:
    """Rate of step 0, 1, ...: linear warm-up to the peak, then half a cosine to zero after the last step."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def batch_rows(count: int, batch_size: int, seed: int, step: int) -> Tensor:
    """Sample numbers [batch_size] of a step: consecutive parts of one shuffled epoch after the other."""
    positions = torch.arange(step * batch_size, (step + 1) * batch_size)
    epochs = positions // count
    rows = [
        torch.randperm(count, generator=seeded("order", seed, epoch))[positions[epochs == epoch] % count]
        for epoch in epochs.unique().tolist()
    ]
    return torch.cat(rows)


def _draw(config: EditorTrainingConfig, step: int, count: int, latents: Tensor, shift: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [batch], times [batch] and noise [batch, tokens, channels] of the global batch, on the latents' device."""
    generator = seeded("flow", config.seed, step)
    time = shift_time(torch.rand(config.batch_size, generator=generator), shift)
    noise = torch.randn(config.batch_size, *latents.shape[1:], generator=generator)
    rows = batch_rows(count, config.batch_size, config.seed, step)
    return rows.to(latents.device), time.to(latents.device), noise.to(latents.device)


def _close_window(progress: _Progress, rate: float) -> None:
    """Turn the losses since the last report into a new one."""
    loss = progress.loss_sum / (progress.step - (progress.reports[-1]["step"] if progress.reports else 0))
    if not math.isfinite(loss):
        raise ValueError(f"the loss is {loss} at step {progress.step}; lower learning_rate or clip_norm")
    progress.reports.append({"step": progress.step, "loss": loss, "learning_rate": rate})
    progress.loss_sum = 0.0


def _mean_over_workers(value: float) -> float:
    if _workers() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device="cuda" if distributed.get_backend() == "nccl" else "cpu")
    distributed.all_reduce(total)
    return total.item() / _workers()


def _state(progress: _Progress, identity: str, editor: Editor, optimizer: torch.optim.Optimizer, average: list[Tensor]) -> dict[str, Any]:
    return {
        "identity": identity,
        "progress": copy.deepcopy(vars(progress)),
        "weights": [weight.detach() for weight in editor.parameters()],
        "average": average,
        "optimizer": optimizer.state_dict(),
    }


def _resume(directory: Path, identity: str, editor: Editor, optimizer: torch.optim.Optimizer, average: list[Tensor]) -> _Progress:
    """Put the newest sound checkpoint's values in place; a fresh start if there is none."""
    state = load_checkpoint(directory) if _rank() == 0 else None
    if _workers() > 1:
        shared = [state]
        distributed.broadcast_object_list(shared)
        state = shared[0]
    if state is None:
        return _Progress()
    if state["identity"] != identity:
        raise ValueError(
            f"{directory} holds checkpoints of another training (other samples, configuration or starting editor); "
            "remove them or give another folder"
        )
    _assign(list(editor.parameters()), state["weights"])
    _assign(average, state["average"])
    optimizer.load_state_dict(state["optimizer"])
    return _Progress(**state["progress"])


@torch.no_grad()
def _assign(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


def _identity(editor: Editor, samples: EditSamples, config: EditorTrainingConfig) -> str:
    """Digest of everything that decides the result of a training."""
    deciding = config.model_dump_json(exclude={"checkpoint_every", "threads"})
    digest = hashlib.blake2b(deciding.encode(), digest_size=32)
    digest.update(editor.config.model_dump_json(exclude={"sampler"}).encode())
    digest.update("\n".join([*editor.vocabulary.words, *samples.sample_ids, *samples.instructions]).encode())
    for images in (samples.source, samples.edited):
        digest.update(images.tobytes())
    for tensor in editor.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _workers() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _rank() -> int:
    return distributed.get_rank() if _workers() > 1 else 0
