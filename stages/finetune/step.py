"""Fine-tune: the base editor, then one arm per selection, all with the same steps (paper 4.4).

The base replaces a pretrained editor: the same network, trained on another noisy set. Every arm trains a copy of it on the shards
of one selection. A training that was stopped resumes from its newest checkpoint and ends with the same parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayTaskError

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import steps, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index
from stages.engine.training_group import (
    MetricsFile,
    checkpoint_lock,
    fit,
    is_rank_zero,
    is_trained,
    progress,
    publish_trained,
    remote_fit,
    root_cause,
    seeded,
)
from stages.finetune.config import FinetuneConfig
from stages.shards import read as shards

if TYPE_CHECKING:
    from finetune.data import EditSamples

STEP = steps.FINETUNE
BASE = "base"


def run(context: Context) -> Index:
    """Train what is not trained yet; returns the step's index."""
    config: FinetuneConfig = context.need("finetune")
    flow = context.flow
    filtered = context.run.step(steps.FILTER).require()
    known = sorted(filtered.results["selections"])
    for arm in config.arms:
        if arm not in known:
            raise ValueError(f"finetune.arms: there is no selection {arm!r}; filter made {', '.join(known)}")
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
    base_payload = _payload(folder.path, BASE, base_key, flow)
    if not is_trained(folder.path / "editors" / BASE, base_key):
        context.cluster.connect()
        with progress({f"{STEP} {BASE}": (folder.path / "metrics" / f"{BASE}.jsonl", config.base.training.steps)}):
            fit(_train_base, base_payload, scratch=folder.path, workers=config.workers, gpus=context.cluster.gpus)
    _train_arms(context, config, folder.path, base_key)
    _clear(folder.path, {BASE, *config.arms})
    files = {f"editors/{name}": sha256 for name, sha256 in storage.tree_hashes(folder.path / "editors").items()}
    files |= {f"metrics/{name}": sha256 for name, sha256 in storage.tree_hashes(folder.path / "metrics").items()}
    return folder.publish(draft, files=files, results={"arms": [BASE, *config.arms]})


def _train_arms(context: Context, config: FinetuneConfig, folder: Path, base_key: str) -> None:
    """Train every arm that is not trained yet: ``parallel_arms`` groups of workers at a time, each of which trains some arms in turn."""
    training = config.training.model_dump(mode="json")
    missing = []
    for arm in config.arms:
        folder_of_shards = shards.folder_in(context, arm)
        arm_key = settings_hash(STEP, arm, base_key, training, context.flow.seed, config.workers, shards.content_hash(folder_of_shards))
        if not is_trained(folder / "editors" / arm, arm_key):
            missing.append(_payload(folder, arm, arm_key, context.flow) | {"shards": folder_of_shards})
    if not missing:
        return
    groups = [missing[first :: config.parallel_arms] for first in range(min(config.parallel_arms, len(missing)))]
    bars = {f"{STEP} {payload['name']}": (folder / "metrics" / f"{payload['name']}.jsonl", config.training.steps) for payload in missing}
    for metrics, _ in bars.values():
        metrics.unlink(missing_ok=True)
    with progress(bars):
        running = [
            remote_fit(context.cluster, _train_arms_sequentially, {"arms": arms}, scratch=folder, workers=config.workers) for arms in groups
        ]
        try:
            ray.get(running)
        except RayTaskError as error:
            raise root_cause(error) from error


def _clear(folder: Path, arms: set[str]) -> None:
    """Remove checkpoints, and the editors and metrics of arms that an earlier configuration had."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for path in [*(folder / "editors").iterdir(), *(folder / "metrics").iterdir()]:
        if path.stem not in arms:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _payload(folder: Path, name: str, key: str, flow: FlowConfig) -> dict[str, Any]:
    return {"folder": str(folder), "name": name, "key": key, "flow": flow.model_dump(mode="json")}


def _train_base(payload: dict[str, Any]) -> None:
    """Train the base editor; run in every worker of its group."""
    from finetune import codec
    from finetune.editor import Editor

    flow = FlowConfig.model_validate(payload["flow"])
    config = flow.finetune
    assert config is not None
    samples = edits.samples(config.base.edits, seed=flow.seed, world=flow.world, image_size=config.editor.image_size)
    patches = codec.fit(samples.source, config.editor.codec)
    editor = Editor.from_config(seeded(config.editor, flow.seed), patches, samples.instructions)
    _train(payload, editor, samples, seeded(config.base.training, flow.seed))


def _train_arms_sequentially(payload: dict[str, Any]) -> None:
    """Train some arms, one after another; run in every worker of their group."""
    from finetune.editor import Editor

    for arm in payload["arms"]:
        flow = FlowConfig.model_validate(arm["flow"])
        config = flow.finetune
        assert config is not None
        editor = Editor.from_directory(Path(arm["folder"]) / "editors" / BASE)
        _train(arm, editor, samples_of(arm["shards"], config.editor.image_size), seeded(config.training, flow.seed))


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

    from finetune.training import train

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
