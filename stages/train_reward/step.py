"""Train the reward model on preference pairs, by a Ray Train worker group (paper sections 3 and 4.1).

In order: the warm-up (toy data only: named edits of the toy world, no ratings; off with real weights), training on all pairs of each group,
and the calibration to the raters' scale and to their ties, on one half of the held-out groups. After a kill the training resumes from its
newest checkpoint and ends with the same parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from reward.inputs.decoding import encoded
from stages.config import FlowConfig
from stages.contamination import references
from stages.context import Context
from stages.engine import steps, storage
from stages.engine.ids import settings_hash
from stages.engine.metrics_file import MetricsFile
from stages.engine.rundir import Index, RunDir
from stages.engine.training_group import (
    Gauges,
    Training,
    checkpoint_lock,
    fit,
    is_rank_zero,
    is_trained,
    publish_trained,
    seeded,
    training_progress,
)
from stages.preferences.groups import calibrates, load_groups

if TYPE_CHECKING:
    from reward import RatedGroup, RewardModel
    from reward.trainer.loop import Metrics
    from reward.training.config import TrainingConfig

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
    preferred = context.run.step(steps.PREFERENCES).sound()
    settings = {
        "reward": config.model_dump(mode="json", exclude={"training": {"loader_workers"}}),
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
        _require_groups(context.run)
        context.cluster.connect()
        payload = {"run": str(context.run.path), "key": training_key, "flow": _with_absolute_paths(flow).model_dump(mode="json")}
        metrics = folder.path / METRICS
        metrics.unlink(missing_ok=True)  # the progress bar would show the training before
        phases = [
            Training(f"{STEP}: warm-up", metrics, config.pretraining.steps, "pretraining"),
            Training(f"{STEP}: ranking", metrics, _ranking_steps(config.training, preferred)),
        ]
        with training_progress(phases):
            fit(_loop, [payload], cluster=context.cluster, scratch=folder.path, workers=config.workers, setting="reward.workers")
    shutil.rmtree(folder.path / CHECKPOINTS, ignore_errors=True)
    files = {f"model/{name}": sha256 for name, sha256 in storage.tree_hashes(model).items()}
    files |= {name: storage.sha256_of(folder.path / name) for name in (METRICS, CURVES)}
    results = {"groups": preferred.results["groups"]["train"], "pairs": sum(preferred.results["pairs"]["train"].values())}
    return folder.publish(draft, files=files, results=results)


def _ranking_steps(config: TrainingConfig, preferred: Index) -> int:
    """Steps of the training, for its progress bar; of batches of pairs at most so many, since ties may teach nothing."""
    from reward.training.batches import total_steps

    groups, pairs = preferred.results["groups"]["train"], sum(preferred.results["pairs"]["train"].values())
    return total_steps(config, groups if config.pairs_per_batch is None else pairs)


def _with_absolute_paths(flow: FlowConfig) -> FlowConfig:
    """The configuration for workers, whose current folder is another one."""
    backbone = flow.reward.model.backbone
    if backbone.pretrained is None or not Path(backbone.pretrained).is_dir():
        return flow
    model = flow.reward.model.model_copy(
        update={"backbone": backbone.model_copy(update={"pretrained": str(Path(backbone.pretrained).absolute())})}
    )
    return flow.model_copy(update={"reward": flow.reward.model_copy(update={"model": model})})


def _require_groups(run: RunDir) -> None:
    """Raise ``ValueError``, before anything is trained, when there is no group to train on, or none to calibrate on."""
    pairs = run.step(steps.PREFERENCES).read("pairs", ["source_id", "split"])
    if "train" not in pc.unique(pairs["split"]).to_pylist():
        raise ValueError("the training split has no pairs; the quarantine of preferences says which groups were left out, and why")
    held_out = pc.unique(pairs.filter(pc.field("split") == "validation")["source_id"]).to_pylist()
    if not any(calibrates(source_id) for source_id in held_out):
        raise ValueError(
            f"the validation split is too small to calibrate on: none of its {len(held_out)} rated groups falls into the calibration half; "
            "rate more sources of that split"
        )


def _loop(payload: dict[str, Any]) -> None:
    """The training, run in every worker of the group."""
    from ray.train.torch import get_device

    from reward import RewardModel, pretrain, train
    from reward.trainer.curves import draw_curves
    from reward.training.batches import batch_size
    from stages.train_reward.origin import origin_of
    from stages.train_reward.world import captioned

    flow = FlowConfig.model_validate(payload["flow"])
    config = flow.reward
    run = RunDir(payload["run"])
    folder = run.step(STEP).path
    checkpoints = folder / CHECKPOINTS / payload["key"]
    first = is_rank_zero()
    training, validation = load_groups(run, "train"), load_groups(run, "validation")
    examples = captioned(config.caption_items, seed=flow.seed, world=flow.world) if config.pretraining.steps else []
    words = [group.instruction for group in training] + [example.instruction for example in examples]
    model = RewardModel.from_config(config.model, words, seed=flow.seed, device=get_device(), unread=True)
    with checkpoint_lock(checkpoints, rank_zero=first):
        report = MetricsFile(folder / METRICS, write=first)
        pairs_per_group = sum(len(group.preferences) for group in training) / max(1, len(training))
        pairs_per_step = config.training.pairs_per_batch or batch_size(config.training) * pairs_per_group
        gauges = Gauges("reward_training", tags={"run": run.path.name}, per_step={"pairs": pairs_per_step}, write=first)

        def ranked(metrics: Metrics) -> None:
            report.append(metrics | {"phase": "training"})
            gauges.show(metrics)

        warm_up = pretrain(
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
            unseen = [group for group in validation if calibrates(group.source_id)]
            _calibrate(trained.model, unseen, loader_workers=config.training.loader_workers)
            storage.publish_bytes(folder / CURVES, draw_curves({"pretraining": warm_up, "training": trained.history}))
            facts = {
                "training data": f"{len(training)} rated groups, {sum(len(g.preferences) for g in training)} pairs (hash {payload['key']})",
                "held-out data": f"{len(validation)} rated groups, one half of them used for calibration",
                "seed": str(flow.seed),
            }
            trained.model.origin = origin_of(run, [group.source_id for group in training])
            seen = ((group.source_id, encoded(group.source), group.instruction) for group in (*training, *validation))

            def save(path: Path) -> None:
                trained.model.cpu().save(path, facts=facts)
                references.publish_training(path, seen)

            publish_trained(folder / "model", payload["key"], save)


def _calibrate(model: RewardModel, groups: list[RatedGroup], *, loader_workers: int) -> None:
    """Fit the map from raw means to the raters' scale, and the margin within which they call two edits equal."""
    from reward.evaluation.evaluate import held_out_means, predict_groups
    from reward.evaluation.metrics import labelled_pairs
    from reward.model.calibration import fit_calibration, fit_tie_threshold

    predictions = predict_groups(model=model, groups=groups, loader_workers=loader_workers)
    pairs = labelled_pairs(groups, predictions)
    threshold = fit_tie_threshold(pairs.overall_margin, pairs.sigma_a, pairs.sigma_b, pairs.overall)
    model.calibration = fit_calibration(*held_out_means(groups, predictions, model.config.dimensions), tie_threshold=threshold)
