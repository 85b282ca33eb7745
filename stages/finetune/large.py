"""A pretrained editor: its pairs are encoded once for all arms, then every arm trains from the same weights on the pairs of its selection.

Some sources are held out of every arm; on their pairs the loss is measured while an arm trains. Nothing of the base is copied: its folder
says where its files are.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from stages.context import Context
from stages.engine import contracts, steps, storage
from stages.engine.ids import settings_hash
from stages.engine.metrics_file import MetricsFile
from stages.engine.rundir import Index, StepFolder
from stages.engine.training_group import (
    Training,
    checkpoint_lock,
    fit,
    is_rank_zero,
    is_trained,
    per_worker,
    publish_trained,
    seeded,
    training_progress,
)
from stages.engine.units import publish_table
from stages.finetune import cache
from stages.finetune.arm_rows import PairRow, arm_rows, distinct, held_out_rows
from stages.finetune.config import LargeFinetuneConfig
from stages.finetune.encoding import encode, encoding_of
from stages.finetune.samples import save_samples

STEP = steps.FINETUNE
BASE, HELD_OUT = "base", "held-out"
_FOLDERS = ("editors", "metrics", "pairs", "samples")
_IRRELEVANT = {
    "parallel_arms": True,
    "workers": True,
    "encode": {"workers", "unit_pairs"},
    "training": {"threads", "loader_workers", "checkpoint_every", "keep_checkpoints"},
}
"""Settings that change no result. Another number of workers changes the rounding of sums: a training that was stopped may go on with it."""


def check(config: LargeFinetuneConfig) -> None:
    """Raise ``ValueError`` for a file of the editor that is missing or another model's, and for a training that its family does not have,
    or whose optimizer is not installed."""
    import torch

    from finetune import families
    from finetune.training.train import ready_to_learn
    from reward.trainer.optimizer import check_installed

    families.check_files(config.editor)
    ready_to_learn(families.without_weights(config.editor), config.training, torch.device("meta"))
    check_installed(config.training.optimizer)


def run(context: Context, filtered: Index) -> Index:
    """Encode and train what is missing; returns the step's index. filtered: of the step filter."""
    from finetune import families
    from finetune.trained import save_base

    config = _located(context.need("finetune"))
    folder = context.run.step(STEP)
    base, encoding = families.model_identity(config.editor), encoding_of(config.editor)
    settings = {
        "finetune": config.model_dump(mode="json", exclude=_IRRELEVANT),
        "base": base,
        "encoding": encoding,
        "seed": context.flow.seed,
    }
    draft, done = folder.begin(settings=settings, inputs={steps.FILTER: filtered.fingerprint}, force=context.force)
    if done:
        return done
    arms = {arm: arm_rows(context, arm, encoding) for arm in config.arms}
    _check_counts(config, {arm: len(rows) for arm, rows in arms.items()}, "")
    every = distinct(list(arms.values()))
    context.cluster.need(config.workers, **per_worker(context.cluster), setting="finetune.workers")  # not only when all is encoded
    encoded = encode(context, folder, config.editor, config.encode, encoding, every)
    pairs, quarantined = _pairs_of_arms(folder, config, context.flow.seed, arms, every, encoded)
    keys = {name: [(row.key, row.null_key) for row in rows] for name, rows in pairs.items()}
    lists = {name: cache.publish_pairs(folder.path, name, of_list, encoded) for name, of_list in keys.items()}
    _train_missing(context, config, folder.path, _payloads(folder, config, context.flow.seed, base, pairs, lists))
    publish_trained(folder.path / "editors" / BASE, base, lambda to: save_base(to, config.editor, base))
    _clear(folder.path, {BASE, *config.arms})
    files = {f"{name}/{path}": sha256 for name in _FOLDERS for path, sha256 in _hashes(folder.path / name)}
    counts = {arm: len(rows) for arm, rows in pairs.items()}
    sampled = [row.instruction for row in pairs[HELD_OUT][: config.training.progress.samples]]
    return folder.publish(
        draft,
        keep={unit.key for unit in encoded.units},
        artifacts={"quarantine": publish_table(folder, "quarantine", contracts.table("quarantine", quarantined))},
        counts={"in": len(every), "out": len(every) - len(quarantined), "quarantined": len(quarantined)},
        quarantined=_by_reason(quarantined),
        files=files,
        results={
            "arms": [BASE, *config.arms],
            "pairs": counts,
            "sampled": sampled,
            "steps": {arm: _steps(config, counts[arm]) for arm in config.arms},
        },
    )


def _located(config: LargeFinetuneConfig) -> LargeFinetuneConfig:
    """The same with the editor's folder from the root, since workers have another working directory."""
    editor = config.editor
    return config.model_copy(update={"editor": editor.model_copy(update={"directory": storage.absolute(editor.directory)})})


def _hashes(folder: Path) -> Sequence[tuple[str, str]]:
    return list(storage.tree_hashes(folder).items())


def _steps(config: LargeFinetuneConfig, pairs: int) -> int:
    return config.training.steps_for(pairs)


def _check_counts(config: LargeFinetuneConfig, pairs: Mapping[str, int], why: str) -> None:
    """Raise ``ValueError`` for an arm with fewer pairs than a batch."""
    for arm, count in pairs.items():
        if count < config.training.batch_size:
            raise ValueError(
                f"finetune.arms: {arm} has {count} pairs{why}, fewer than finetune.training.batch_size {config.training.batch_size}; "
                "lower it, or select more"
            )


def _pairs_of_arms(
    folder: StepFolder,
    config: LargeFinetuneConfig,
    seed: int,
    arms: Mapping[str, Sequence[PairRow]],
    every: Sequence[PairRow],
    encoded: cache.Cache,
) -> tuple[dict[str, list[PairRow]], list[dict[str, Any]]]:
    """Pairs that every arm trains on, and the held-out ones; and what was set aside."""
    outcomes = {row.key: encoded.outcome(row.key, config.encode.ratio_difference) for row in every}
    quarantined = [
        {"row_id": row.sample_id, "position": f"{row.shard}: {row.sample_id}", "reason": outcome.reason, "message": outcome.message}
        for row in every
        if isinstance(outcome := outcomes[row.key], cache.SetAside)
    ]
    usable = [row for row in every if isinstance(outcomes[row.key], cache.Place)]
    held_out = held_out_rows(usable, config.training.progress.pairs, seed)
    sources = {row.source_sha256 for row in held_out}
    keys = {row.key for row in usable if row.source_sha256 not in sources}
    pairs = {arm: [row for row in rows if row.key in keys] for arm, rows in arms.items()}
    _check_counts(config, {arm: len(rows) for arm, rows in pairs.items()}, f" beside {len(held_out)} held-out ones and those set aside")
    return pairs | {HELD_OUT: held_out}, quarantined


def _by_reason(quarantined: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    reasons = [row["reason"] for row in quarantined]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _payloads(
    folder: StepFolder,
    config: LargeFinetuneConfig,
    seed: int,
    base: str,
    pairs: Mapping[str, Sequence[PairRow]],
    lists: Mapping[str, str],
) -> list[dict[str, Any]]:
    """One per arm; its key names everything that its editor depends on. lists: files with the places of the pairs."""
    settings = config.model_dump(mode="json", exclude=_IRRELEVANT | {"arms": True})
    held_out = [row.key for row in pairs[HELD_OUT]]
    return [
        {
            "folder": str(folder.path),
            "name": arm,
            "key": settings_hash(STEP, settings, base, seed, [row.key for row in pairs[arm]], held_out),
            "base": base,
            "pairs": lists[arm],
            "held_out": lists[HELD_OUT],
            "finetune": config.model_dump(mode="json"),
            "seed": seed,
        }
        for arm in config.arms
    ]


def _train_missing(context: Context, config: LargeFinetuneConfig, folder: Path, arms: Sequence[dict[str, Any]]) -> None:
    """Train every arm that is not trained yet, in ``parallel_arms`` groups of workers."""
    missing = [arm for arm in arms if not is_trained(folder / "editors" / arm["name"], arm["key"])]
    if not missing:
        return
    room = context.cluster.room(**per_worker(context.cluster)) // config.workers
    count = max(1, min(config.parallel_arms, len(missing), room))
    shown = []
    for arm in missing:
        metrics = folder / "metrics" / f"{arm['name']}.jsonl"
        metrics.unlink(missing_ok=True)
        shown.append(Training(f"{STEP}: {arm['name']}", metrics, _steps(config, cache.CachedPairs(folder, arm["pairs"]).count)))
    payloads = [{"arms": missing[first::count]} for first in range(count)]
    with training_progress(shown):
        fit(_train_in_turn, payloads, cluster=context.cluster, scratch=folder, workers=config.workers, setting="finetune.workers")


def _clear(folder: Path, arms: set[str]) -> None:
    """Remove checkpoints, and what there is of arms that an earlier configuration had."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for path in [path for name in ("editors", "metrics", "samples") for path in (folder / name).glob("*")]:
        if path.stem not in arms:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _train_in_turn(payload: dict[str, Any]) -> None:
    """Train some arms, one after another; run in every worker of their group."""
    from reward.trainer.workers import first_says

    for arm in payload["arms"]:
        config = LargeFinetuneConfig.model_validate(arm["finetune"])
        if not first_says(is_trained(Path(arm["folder"]) / "editors" / arm["name"], arm["key"])):  # by this group, before one of it died
            _train(arm, config)


def _train(arm: dict[str, Any], config: LargeFinetuneConfig) -> None:
    import torch
    from ray.train.torch import get_device

    from finetune import families
    from finetune.trained import save_trained
    from finetune.training.train import train
    from reward.trainer.sharding import will_shard
    from reward.trainer.workers import wait_for_all

    folder, name = Path(arm["folder"]), arm["name"]
    training = seeded(config.training, arm["seed"])
    device, stored = get_device(), None
    if training.adapters is None and will_shard(training.parallel):
        model = families.without_weights(config.editor)
        stored = families.stored_rows(config.editor, model)
    else:
        half = training.adapters is not None and training.precision == "bf16"
        model = families.open_model(config.editor, device, torch.bfloat16 if half else torch.float32)
    first, held_out = is_rank_zero(), cache.CachedPairs(folder, arm["held_out"])
    decoder = lru_cache(partial(families.open_decoder, config.editor, device))
    checkpoints = folder / "checkpoints" / f"{name}-{arm['key']}"
    with checkpoint_lock(checkpoints, rank_zero=first):
        metrics = MetricsFile(folder / "metrics" / f"{name}.jsonl", write=first)
        train(
            model=model,
            base=arm["base"],
            pairs=cache.CachedPairs(folder, arm["pairs"]),
            held_out=held_out,
            flow=config.flow,
            config=training,
            checkpoint_dir=checkpoints,
            on_metrics=metrics.append,
            on_samples=partial(save_samples, folder, name, held_out, decoder),
            sampling=config.editor.sampling,
            device=device,
            stored=stored,
        )
        if first:
            publish_trained(folder / "editors" / name, arm["key"], lambda to: save_trained(to, config.editor, arm["base"], training, model))
            shutil.rmtree(checkpoints, ignore_errors=True)
    wait_for_all()  # the next arm may begin
