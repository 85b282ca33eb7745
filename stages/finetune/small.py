"""The toy data set's small editor: the base, then one arm per selection, all with the same steps.

The base replaces a pretrained editor: the same network, trained on another noisy set. Every arm trains a copy of it on the shards
of one selection. A training that was stopped resumes from its newest checkpoint and ends with the same parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import steps, storage
from stages.engine.ids import settings_hash
from stages.engine.metrics_file import MetricsFile
from stages.engine.rundir import Index
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
from stages.finetune.config import FinetuneConfig
from stages.shards import read as shards

if TYPE_CHECKING:
    from finetune.data import EditSamples

STEP = steps.FINETUNE
BASE = "base"


def run(context: Context, filtered: Index) -> Index:
    """Train what is not trained yet; returns the step's index. filtered: of the step filter."""
    config: FinetuneConfig = context.need("finetune")
    flow = context.flow
    folder = context.run.step(STEP)
    settings = {
        "finetune": config.model_dump(mode="json", exclude={"parallel_arms"}),
        "world": flow.world.model_dump(mode="json") if flow.world else None,
        "seed": flow.seed,
    }
    inputs = {steps.FILTER: filtered.fingerprint}
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    base_settings = settings["finetune"]["base"] | {"editor": settings["finetune"]["editor"], "workers": config.workers}
    base_key = settings_hash(STEP, BASE, base_settings, settings["world"], flow.seed)
    _train_missing(context, config, folder.path, base_key)
    _clear(folder.path, {BASE, *config.arms})
    files = {f"editors/{name}": sha256 for name, sha256 in storage.tree_hashes(folder.path / "editors").items()}
    files |= {f"metrics/{name}": sha256 for name, sha256 in storage.tree_hashes(folder.path / "metrics").items()}
    return folder.publish(draft, files=files, results={"arms": [BASE, *config.arms]})


def _train_missing(context: Context, config: FinetuneConfig, folder: Path, base_key: str) -> None:
    """Train the base and every arm that is not trained yet, in ``parallel_arms`` groups of workers; one group trains the base, too."""
    flow, training = context.flow, config.training.model_dump(mode="json")
    base, arms = [_payload(folder, BASE, base_key, flow)], []
    for arm in config.arms:
        of_shards = shards.folder_in(context, arm)
        key = settings_hash(STEP, arm, base_key, training, flow.seed, config.workers, shards.content_hash(of_shards))
        arms.append(_payload(folder, arm, key, flow) | {"shards": of_shards})
    base, arms = ([one for one in editors if not is_trained(folder / "editors" / one["name"], one["key"])] for editors in (base, arms))
    if not base and not arms:
        return
    room = context.cluster.room(**per_worker(context.cluster)) // config.workers
    count = min(config.parallel_arms, len(arms), room)
    rounds = [[base + arms]] if count < 2 else [[base], [arms[first::count] for first in range(count)]]
    for groups in rounds:
        if any(groups):
            _train_groups(context, config, folder, groups)


def _train_groups(context: Context, config: FinetuneConfig, folder: Path, groups: list[list[dict[str, Any]]]) -> None:
    """Train groups of editors at the same time, the editors of a group in turn."""
    shown = []
    for name in (editor["name"] for editors in groups for editor in editors):
        training = config.base.training if name == BASE else config.training
        shown.append(Training(f"{STEP}: {name}", folder / "metrics" / f"{name}.jsonl", training.steps))
        (folder / "metrics" / f"{name}.jsonl").unlink(missing_ok=True)
    payloads = [{"editors": editors} for editors in groups]
    with training_progress(shown):
        fit(_train_in_turn, payloads, cluster=context.cluster, scratch=folder, workers=config.workers, setting="finetune.workers")


def _clear(folder: Path, arms: set[str]) -> None:
    """Remove checkpoints, and the editors and metrics of arms that an earlier configuration had."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for path in [*(folder / "editors").iterdir(), *(folder / "metrics").iterdir()]:
        if path.stem not in arms:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _payload(folder: Path, name: str, key: str, flow: FlowConfig) -> dict[str, Any]:
    return {"folder": str(folder), "name": name, "key": key, "flow": flow.model_dump(mode="json")}


def _train_in_turn(payload: dict[str, Any]) -> None:
    """Train some editors, one after another; run in every worker of their group."""
    from finetune.editor import Editor
    from reward.trainer.workers import first_says

    for one in payload["editors"]:
        flow = FlowConfig.model_validate(one["flow"])
        config = flow.finetune
        assert isinstance(config, FinetuneConfig)
        if first_says(is_trained(Path(one["folder"]) / "editors" / one["name"], one["key"])):
            continue  # by this group, before one of its workers died
        if one["name"] == BASE:
            _train_base(one, config, flow)
        else:
            editor = Editor.from_directory(Path(one["folder"]) / "editors" / BASE)
            _train(one, editor, samples_of(one["shards"], config.editor.image_size), seeded(config.training, flow.seed))


def _train_base(payload: dict[str, Any], config: FinetuneConfig, flow: FlowConfig) -> None:
    from finetune import codec
    from finetune.editor import Editor

    samples = edits.samples(config.base.edits, seed=flow.seed, world=flow.world, image_size=config.editor.image_size)
    patches = codec.fit(samples.source, config.editor.codec)
    editor = Editor.from_config(seeded(config.editor, flow.seed), patches, samples.instructions)
    _train(payload, editor, samples, seeded(config.base.training, flow.seed))


def samples_of(folder: str, image_size: int) -> EditSamples:
    """All samples of a folder of shards, in its order, squared. Raises ``ValueError`` naming what is damaged."""
    from finetune.data import EditSamples, squared

    source, edited, instructions, sample_ids = [], [], [], []
    for sample in shards.samples(folder):
        where = f"of sample {sample.sample_id} in {folder}"
        source.append(squared(decode(sample.source, what=f"the source image {where}"), image_size))
        edited.append(squared(decode(sample.edited, what=f"the edited image {where}"), image_size))
        instructions.append(sample.facts["instruction"])
        sample_ids.append(sample.sample_id)
    if not source:
        raise ValueError(f"{folder} contains no samples")
    return EditSamples(np.stack(source), np.stack(edited), instructions, sample_ids)


def _train(payload: dict[str, Any], editor: Any, samples: Any, training: Any) -> None:
    from ray.train.torch import get_device

    from finetune.training.small import train
    from reward.trainer.workers import wait_for_all

    folder, name = Path(payload["folder"]), payload["name"]
    first = is_rank_zero()
    checkpoints = folder / "checkpoints" / f"{name}-{payload['key']}"
    with checkpoint_lock(checkpoints, rank_zero=first):
        metrics = MetricsFile(folder / "metrics" / f"{name}.jsonl", write=first)
        trained = train(
            editor=editor.to(get_device()), samples=samples, config=training, checkpoint_dir=checkpoints, on_metrics=metrics.append
        )
        if first:
            publish_trained(folder / "editors" / name, payload["key"], trained.cpu().save)
            shutil.rmtree(checkpoints, ignore_errors=True)
    wait_for_all()  # the next training may begin with this editor
