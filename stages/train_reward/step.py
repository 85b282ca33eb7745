"""Train the reward model on preference pairs, by a Ray Train worker group (paper sections 3 and 4.1).

In order: the stand-in for web pretraining (named edits of the embedded world, no ratings; off with real weights), training on all pairs of
each group, and the calibration to the raters' scale and to their ties, on one half of the held-out groups. The training continues from its
newest checkpoint after any kill and ends with the same parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.config import FlowConfig, WorldConfig
from stages.contamination import references
from stages.context import Context
from stages.engine import images, steps, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, RunDir
from stages.engine.training_group import (
    Gauges,
    MetricsFile,
    ProgressWatch,
    checkpoint_lock,
    fit,
    is_rank_zero,
    is_trained,
    publish_trained,
    seeded,
)
from stages.preferences.groups import calibrates, load_groups
from stages.world import items
from stages.world.scenes import render

if TYPE_CHECKING:
    from reward import EditSample, RatedGroup, RewardModel
    from reward.trainer.loop import Metrics

STEP = steps.TRAIN_REWARD
METRICS = "metrics.jsonl"
CURVES = "curves.png"
CHECKPOINTS = "checkpoints"


def run(context: Context) -> Index:
    """Train what is not trained yet; returns the step's index."""
    flow = context.flow
    config = flow.reward
    if config.pretraining.steps and config.caption_items == 0:
        raise ValueError("reward.caption_items is 0, but reward.pretraining.steps is not; set both or neither")
    preferred = context.run.step(steps.PREFERENCES).require()
    settings = {
        "reward": config.model_dump(mode="json"),
        "world": flow.world.model_dump(mode="json") if flow.world else None,
        "seed": flow.seed,
    }
    inputs = {steps.PREFERENCES: preferred.fingerprint}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    model = folder.path / "model"
    training_key = settings_hash(STEP, settings, inputs)
    if not is_trained(model, training_key):
        context.cluster.connect()
        payload = {"run": str(context.run.path), "key": training_key, "flow": flow.model_dump(mode="json")}
        metrics = folder.path / METRICS
        with ProgressWatch({STEP: (metrics, config.pretraining.steps + (config.training.steps or 0))}):
            fit(_loop, payload, scratch=folder.path, workers=config.workers, gpus=context.cluster.gpus)
    shutil.rmtree(folder.path / CHECKPOINTS, ignore_errors=True)
    files = {f"model/{name}": sha256 for name, sha256 in storage.tree_hashes(model).items()}
    files |= {name: storage.sha256_of(folder.path / name) for name in (METRICS, CURVES)}
    results = {"groups": preferred.results["groups"]["train"], "pairs": sum(preferred.results["pairs"]["train"].values())}
    return folder.publish(draft, files=files, results=results)


def _checkpoints(folder: Path, key: str) -> Path:
    return folder / CHECKPOINTS / key


def _loop(payload: dict[str, Any]) -> None:
    """The training, run in every worker of the group."""
    from ray.train.torch import get_device

    from reward import RewardModel, pretrain, train
    from reward.trainer.curves import draw_curves

    flow = FlowConfig.model_validate(payload["flow"])
    config = flow.reward
    run = RunDir(payload["run"])
    folder = run.step(STEP).path
    checkpoints = _checkpoints(folder, payload["key"])
    first = is_rank_zero()
    training, validation = load_groups(run, "train"), load_groups(run, "validation")
    examples = _captioned(flow) if config.pretraining.steps else []
    words = [group.instruction for group in training] + [example.instruction for example in examples]
    model = RewardModel.from_config(config.model, words, seed=flow.seed).to(get_device())
    with checkpoint_lock(checkpoints, rank_zero=first):
        report = MetricsFile(folder / METRICS, write=first)
        pairs_per_step = config.training.groups_per_batch * sum(len(group.preferences) for group in training) / max(1, len(training))
        gauges = Gauges("reward_training", tags={"run": run.path.name}, per_step={"pairs": pairs_per_step}, write=first)

        def ranked(metrics: Metrics) -> None:
            report.append(metrics | {"phase": "training"})
            gauges.show(metrics)

        captioned = pretrain(
            model=model,
            config=seeded(config.pretraining, flow.seed),
            examples=examples,
            checkpoint_dir=checkpoints / "pretraining",
            on_metrics=lambda metrics: report.append(metrics | {"phase": "pretraining"}),
        )
        trained = train(
            model=model,
            config=seeded(config.training, flow.seed),
            loss=config.loss,
            groups=training,
            validation=validation,
            checkpoint_dir=checkpoints / "training",
            on_metrics=ranked,
        )
        if first:
            _calibrate(trained.model, [group for group in validation if calibrates(group.source_id)])
            phases = {"pretraining": captioned, "training": trained.history}
            report.rewrite([metrics | {"phase": phase} for phase, history in phases.items() for metrics in history])
            storage.publish_bytes(folder / CURVES, draw_curves(phases))
            facts = {
                "training data": f"{len(training)} rated groups, {sum(len(g.preferences) for g in training)} pairs (hash {payload['key']})",
                "held-out data": f"{len(validation)} rated groups, one half of them used for calibration",
                "seed": str(flow.seed),
            }
            seen = [(group.source_id, group.source, group.instruction) for group in (*training, *validation)]

            def save(path: Path) -> None:
                trained.model.cpu().save(path, facts=facts)
                references.publish_training(path, seen)

            publish_trained(folder / "model", payload["key"], save)


def _calibrate(model: RewardModel, groups: list[RatedGroup]) -> None:
    """Fit the map from raw means to the raters' scale, and the margin within which they call two edits equal."""
    from reward.evaluation.evaluate import held_out_means, predict_groups
    from reward.evaluation.metrics import labelled_pairs
    from reward.model.calibration import fit_calibration, fit_tie_threshold

    if not groups:
        raise ValueError("the validation split is too small to calibrate on: none of its groups falls into the calibration half")
    predictions = predict_groups(model=model, groups=groups)
    pairs = labelled_pairs(groups, predictions)
    threshold = fit_tie_threshold(pairs.overall_margin, pairs.sigma_a, pairs.sigma_b, pairs.overall)
    model.calibration = fit_calibration(*held_out_means(groups, predictions, model.config.dimensions), tie_threshold=threshold)


def _captioned(flow: FlowConfig) -> list[EditSample]:
    """Sources, exact edits and instructions of the embedded world, from scenes of their own."""
    from reward import EditSample

    world = flow.world
    if world is None:
        raise ValueError(
            "reward.pretraining draws its items in the embedded world: add the section world, or set reward.pretraining.steps to 0"
        )
    return [_captioned_item(flow.seed, index, world, EditSample) for index in range(flow.reward.caption_items)]


def _captioned_item(seed: int, index: int, world: WorldConfig, sample: type[EditSample]) -> EditSample:
    item = items.item(seed, "caption", index, kinds=world.kinds, jitter=world.jitter)
    source, exact = images.png(render(item.scene, world.size)), images.png(render(item.target, world.size))
    return sample(source=source, instruction=item.instruction, edited=exact)
