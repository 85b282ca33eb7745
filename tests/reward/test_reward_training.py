"""Training for real: several passes and workers, shards, adapters, frozen words, averaged weights, curves, mistakes that end a run."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import two_processes
from PIL import Image
from pretrained import write_pretrained
from pydantic import ValidationError
from tiny_model import BACKBONE
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reward import RatedGroup, RewardModel, build_preferences, train
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inputs.groups import Preference
from reward.trainer.config import AdapterConfig
from reward.trainer.curves import draw_curves
from reward.trainer.loop import LossTerms, Metrics, accumulate
from reward.trainer.lora import adapt
from reward.training.batches import check_token_budget, separate_pairs, total_steps
from reward.training.config import LoraConfig, LossConfig, TrainingConfig
from stages.engine.cluster import Cluster
from stages.engine.training_group import Gauges

pytestmark = pytest.mark.slow

torch.set_num_threads(1)

DIMENSIONS = ("instruction_following", "visual_quality")
WORDS = ("make the red circle blue", "add a yellow square", "remove the cross at the top")
CONFIG = RewardModelConfig(
    backbone=BACKBONE,
    presentation=PresentationConfig(image_area=256),
    heads=HeadConfig(hidden=(8,)),
)
RUBRICS = CONFIG.model_copy(update={"presentation": PresentationConfig(layout="images", prompt="rubric_first", image_area=256)})
ONE_GROUP = {"groups_per_batch": 1}
GROUP_TOKENS = 30
"""A budget of tokens that holds one group, not two."""


def picture(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def group(number: int) -> RatedGroup:
    """Three edits; the brighter one follows the instruction more, the noisier one has less quality."""
    generator = np.random.default_rng(number)
    levels = generator.integers(1, 5, (3, 2))
    source = np.full((16, 16, 3), 60 + number % 50)
    edits = [source + 30 * following + generator.uniform(0, 12 * (5 - quality), source.shape) for following, quality in levels]
    scores = tuple(dict(zip(DIMENSIONS, map(float, row), strict=True)) for row in levels)
    return RatedGroup(
        source_id=f"s{number}",
        source=picture(source),
        instruction=WORDS[number % 3],
        candidate_ids=tuple(f"s{number}-{i}" for i in range(3)),
        candidates=tuple(picture(edit.clip(0, 255)) for edit in edits),
        scores=scores,
        preferences=tuple(build_preferences(scores, DIMENSIONS)),
    )


GROUPS, HELD_OUT = [group(number) for number in range(10)], [group(number) for number in range(100, 104)]
TRAINING = TrainingConfig(steps=6, groups_per_batch=5, checkpoint_every=2, log_every=1, validate_every=3, learning_rate=1e-3)


def make(seed: int = 0, config: RewardModelConfig = CONFIG) -> RewardModel:
    return RewardModel.from_config(config, WORDS, seed=seed).eval()


def nothing(metrics: Metrics) -> None:
    pass


def run(model: RewardModel, folder: Path, on_metrics: Callable[[Metrics], None] = nothing, **changes: Any) -> list[Metrics]:
    training = TRAINING.model_copy(update=changes)
    arguments = {"loss": LossConfig(), "groups": GROUPS, "validation": HELD_OUT, "checkpoint_dir": folder, "on_metrics": on_metrics}
    return train(model=model, config=training, **arguments).history


def weights(model: RewardModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float) -> None:
    assert list(a) == list(b)
    for name in a:
        if not name.endswith("mlp.2.bias"):  # a shift of all scores has no gradient: there AdamW follows rounding errors
            assert (a[name] - b[name]).abs().max() <= tolerance, name


def assert_identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert list(a) == list(b)
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


# ------------------------------------------------------------------------------------------------------------- one process


@pytest.mark.parametrize("changes", [{}, {"precision": "bf16", "activation_checkpointing": True}], ids=["fp32", "bf16"])
def test_several_passes_learn_what_one_learns(changes: dict[str, Any], tmp_path: Path) -> None:
    one, several = make(), make()
    calls: list[int] = []
    several.register_forward_hook(lambda module, *_: calls.append(1) if module.training else None)
    history = run(one, tmp_path / "one", **changes)
    found = run(several, tmp_path / "several", token_budget=GROUP_TOKENS, **changes)
    assert len(calls) == TRAINING.groups_per_batch * 6
    tolerance = 1e-4 if not changes else 5e-3
    assert [m["loss"] for m in found] == pytest.approx([m["loss"] for m in history], abs=10 * tolerance)
    assert_close(weights(one), weights(several), tolerance)


def test_pairs_are_drawn_from_all_groups_with_their_own_candidates() -> None:
    loss = LossConfig()
    pairs = separate_pairs(GROUPS, loss)
    kept = [(rated, one) for rated in GROUPS for one in rated.preferences if {one.overall, *one.dimensions} != {None}]
    assert len(pairs) == len(kept) < sum(len(rated.preferences) for rated in GROUPS)
    for pair, (rated, one) in zip(pairs, kept, strict=True):
        (preference,) = pair.preferences
        assert (pair.source_id, pair.source, pair.instruction) == (rated.source_id, rated.source, rated.instruction)
        assert pair.candidates == (rated.candidates[one.a], rated.candidates[one.b])
        assert pair.scores == (rated.scores[one.a], rated.scores[one.b])
        assert (preference.a, preference.b) == (0, 1)
        assert (preference.overall, preference.dimensions, preference.origin) == (one.overall, one.dimensions, one.origin)
    strict = separate_pairs(GROUPS, LossConfig(per_dimension_weight=0))
    assert strict == [pair for pair in pairs if pair.preferences[0].overall is not None]
    assert len(separate_pairs(GROUPS, LossConfig(kind="bradley_terry_ties"))) == sum(len(rated.preferences) for rated in GROUPS)


def test_all_pairs_of_a_group_teach_what_the_group_teaches(tmp_path: Path) -> None:
    """With all preferences in one batch it does not matter whether candidates are shared."""
    whole, single = make(), make()
    count = len(separate_pairs(GROUPS, LossConfig()))
    history = run(whole, tmp_path / "groups", groups_per_batch=len(GROUPS))
    found = run(single, tmp_path / "pairs", groups_per_batch=None, pairs_per_batch=count)
    assert [m["loss"] for m in found] == pytest.approx([m["loss"] for m in history], abs=1e-3)
    assert_close(weights(whole), weights(single), 1e-4)


def test_pairs_that_are_all_ties_teach_nothing(tmp_path: Path) -> None:
    equal = [replace(rated, preferences=(Preference(0, 1, (None, None), None, (0.0, 0.0)),)) for rated in GROUPS]
    training = TRAINING.model_copy(update={"groups_per_batch": None, "pairs_per_batch": 4})
    arguments = {"groups": equal, "validation": [], "checkpoint_dir": tmp_path, "on_metrics": nothing}
    with pytest.raises(ValueError, match="every pair is a tie"):
        train(model=make(), config=training, loss=LossConfig(), **arguments)


def test_steps_of_epochs_count_what_a_batch_has() -> None:
    by_groups = TrainingConfig(steps=None, epochs=2, groups_per_batch=8)
    by_pairs = TrainingConfig(steps=None, epochs=2, groups_per_batch=None, pairs_per_batch=16)
    assert (total_steps(by_groups, 9079), total_steps(by_pairs, 190_659)) == (2270, 23_833)
    for batch in ({"groups_per_batch": None}, {"pairs_per_batch": 16}):
        with pytest.raises(ValidationError, match="exactly one of groups_per_batch and pairs_per_batch"):
            TrainingConfig(**batch)


def test_workers_exchange_gradients_once_a_step(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        linear = nn.Linear(2, 1)
        module = DistributedDataParallel(linear)
        exchanges = []

        def exchange(state, bucket):  # without types: torch compares them with its own
            exchanges.append(bucket.index())
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        module.register_comm_hook(None, exchange)

        def share() -> LossTerms:
            value = module(torch.ones(3, 2)).sum()
            return value, {"loss": value}

        loss, reported = accumulate(module, [share] * 4)
        assert not exchanges and float(reported["loss"]) == pytest.approx(4 * float(loss.detach()))
        loss.backward()
        assert len(exchanges) == 1 and linear.weight.grad is not None and linear.weight.grad.tolist() == [[12.0, 12.0]]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "changes",
    [
        {"ema_decay": 0.9},
        {"adapter": "lora", "lora": LoraConfig(rank=4, alpha=8, dropout=0.1), "activation_checkpointing": True},
        {"freeze_vocabulary": True, "token_budget": GROUP_TOKENS},
    ],
    ids=["average", "lora", "frozen"],
)
def test_a_killed_run_ends_with_identical_parameters(changes: dict[str, Any], tmp_path: Path) -> None:
    whole, resumed = make(), make(seed=9)
    history = run(whole, tmp_path / "whole", **changes)

    def kill(metrics: Metrics) -> None:
        if metrics["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path / "killed", kill, **changes)
    assert run(resumed, tmp_path / "killed", **changes) == history
    assert_identical(weights(resumed), weights(whole))
    again = make(seed=3)  # a run that was killed after its last checkpoint has only to be read
    assert run(again, tmp_path / "killed", **changes) == history
    assert_identical(weights(again), weights(whole))


def test_loader_workers_change_no_result_and_no_resume(tmp_path: Path) -> None:
    """Dropout would show whether a loader draws from the training's randomness; steps go over the end of an epoch."""
    changes: dict[str, Any] = {"adapter": "lora", "lora": LoraConfig(rank=4, alpha=8, dropout=0.1), "groups_per_batch": 3}
    whole, resumed = make(), make(seed=9)
    history = run(whole, tmp_path / "whole", **changes)

    def kill(metrics: Metrics) -> None:
        if metrics["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path / "killed", kill, loader_workers=2, **changes)
    assert run(resumed, tmp_path / "killed", loader_workers=1, **changes) == history
    assert_identical(weights(resumed), weights(whole))


def test_an_image_that_cannot_be_used_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    damaged = [*GROUPS[:4], replace(GROUPS[4], source=tmp_path / "gone.png")]
    arguments = {"loss": LossConfig(), "validation": [], "checkpoint_dir": tmp_path / "run", "on_metrics": nothing}
    for workers in (0, 1):
        training = TRAINING.model_copy(update={"loader_workers": workers})
        with pytest.raises(
            ValueError, match=r"^group s4: source image \S+/gone\.png cannot be decoded \([^\n]*\); expected a whole image file$"
        ):
            train(model=make(), config=training, groups=damaged, **arguments)


@pytest.mark.parametrize("config", [CONFIG, RUBRICS], ids=["words", "rubric_first"])
def test_an_edit_larger_than_a_pass_is_one_sentence(config: RewardModelConfig, tmp_path: Path) -> None:
    """A group may be larger than the budget, an edit may not: the longest of the first group that is too long is named."""
    model = make(config=config)
    prepared = model.prepare(source=GROUPS[0].source, candidates=GROUPS[0].candidates, instruction=GROUPS[0].instruction)
    alone = [len(item.tree) for item in model.processor.separated(prepared)]
    assert prepared.tree.edit_lengths() == alone and max(alone) < len(prepared.tree)
    named = replace(GROUPS[0], candidate_ids=("a", "b", "c"))
    check_token_budget(prepared, named, max(alone))
    with pytest.raises(ValueError, match=rf"^reward\.training\.token_budget is 3, but edit c of source s0 alone has {max(alone)} tokens"):
        check_token_budget(prepared, named, 3)
    with pytest.raises(ValueError, match=r"token_budget is 3, but edit s\d+-2 of source s\d+ alone"):
        run(model, tmp_path, token_budget=3)


def test_so_many_checkpoints_are_kept(tmp_path: Path) -> None:
    run(make(), tmp_path, keep_checkpoints=3)
    assert [path.name[:13] for path in sorted(tmp_path.iterdir())] == ["step-00000002", "step-00000004", "step-00000006"]


def test_frozen_words_stay_and_the_reward_token_learns(tmp_path: Path) -> None:
    frozen, free = make(), make()
    before, vector = weights(frozen), frozen.reward_embedding.detach().clone()
    run(frozen, tmp_path / "frozen", freeze_vocabulary=True)
    embedding = frozen.backbone.get_input_embeddings().weight
    assert embedding.grad is None and torch.equal(embedding, before["backbone.language_model.embed_tokens.weight"])
    assert not torch.equal(frozen.reward_embedding, vector)
    run(free, tmp_path / "free")
    assert not torch.equal(free.backbone.get_input_embeddings().weight, embedding)


def test_heads_have_a_rate_of_their_own(tmp_path: Path) -> None:
    model = make()
    before = weights(model)
    run(model, tmp_path, head_learning_rate=1e-12)
    moved = {name: float((tensor - before[name]).abs().max()) for name, tensor in weights(model).items()}
    assert all(moved[name] < 1e-9 for name in moved if not name.startswith("backbone."))
    assert max(moved.values()) > 1e-4


def test_the_rate_rises_over_the_share_of_steps_that_warms_up(tmp_path: Path) -> None:
    history = run(make(), tmp_path, warmup_ratio=0.5, log_every=1)
    rates = [metrics["learning_rate"] / TRAINING.learning_rate for metrics in history]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.75, 0.25])


def test_validation_and_the_result_have_averaged_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reward.training.train as module

    model = make()
    averages, validated = [weights(model)], []

    def follow(metrics: Metrics) -> None:
        averages.append({name: 0.7 * averages[-1][name] + 0.3 * tensor for name, tensor in weights(model).items()})

    predict = module.predict
    monkeypatch.setattr(module, "predict", lambda *, model, **given: validated.append(weights(model)) or predict(model=model, **given))
    run(model, tmp_path, follow, ema_decay=0.7)
    assert len(validated) == 2
    for found, step in ((validated[0], 3), (validated[1], 6), (weights(model), 6)):
        assert max(float((found[name] - averages[step][name]).abs().max()) for name in found) < 1e-6
    assert any(not torch.equal(averages[3][name], averages[6][name]) for name in averages[0])


def test_workers_share_a_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three scores a third, in equally many passes; together they find what one does."""
    import reward.training.train as module

    model = make().eval()
    groups = (GROUPS + HELD_OUT)[:7]
    alone = module._validation(model, TRAINING, groups)()
    scored: list[Any] = []

    def gather(shares: list[Any], mine: Any) -> None:
        scored.append(mine)
        if len(scored) > 3:
            shares[:] = scored[:3]

    monkeypatch.setattr(module.dist, "all_gather_object", gather)
    found = []
    for rank in (0, 1, 2, 0, 1, 2):
        monkeypatch.setattr(module, "rank_and_world", lambda rank=rank: (rank, 3))
        found.append(module._validation(model, TRAINING, groups)())
    assert [len(share) for share in scored] == [3] * 6
    assert found[3] == found[4] == found[5] == alone


# ---------------------------------------------------------------------------------------------------------------- adapters


def outputs(model: RewardModel) -> Tensor:
    prepared = [model.prepare(source=g.source, candidates=g.candidates, instruction=g.instruction) for g in GROUPS[:3]]
    with torch.no_grad():
        return model(model.collate(prepared)).mean


def test_adapters_change_nothing_until_they_learn_and_merge_into_a_plain_model() -> None:
    model = make()
    before, names = outputs(model), list(model.state_dict())
    model.backbone.requires_grad_(False)
    adapters = adapt([model.backbone.language_model, model.backbone.visual], AdapterConfig(rank=3, alpha=6), seed=1, device=model.device)
    learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert {"lora_A" in name or "lora_B" in name or not name.startswith("backbone.") for name in learning} == {True}
    assert {"visual" in name for name in learning} == {True, False} and "reward_embedding" in learning
    assert torch.equal(outputs(model), before)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    changed = outputs(model)
    assert (changed - before).abs().max() > 1e-2
    for adapter in adapters:
        adapter.merge_and_unload()
    assert (outputs(model) - changed).abs().max() < 1e-5
    assert list(model.state_dict()) == names


def test_adapters_learn_low_ranks_and_leave_the_rest(tmp_path: Path) -> None:
    model = make()
    before = weights(model)
    history = run(model, tmp_path / "run", adapter="lora", lora=LoraConfig(rank=2, alpha=4), learning_rate=1e-2)
    after = weights(model)
    assert list(after) == list(before) and history[-1]["loss"] < history[0]["loss"]
    for name in after:
        change = after[name] - before[name]
        if name.startswith("backbone.language_model.layers.") and name.endswith("_proj.weight"):
            values = torch.linalg.svdvals(change)
            assert values[1] > 1e-6 > values[2], name
        else:
            assert change.any() != name.startswith("backbone."), name
    model.save(tmp_path / "model")
    assert_identical(weights(RewardModel.load(tmp_path / "model")), after)


# ----------------------------------------------------------------------------------------------------------- two processes

Case = tuple[str, RewardModelConfig, TrainingConfig, int | None]
"""Name, model, training, and the step whose report a kill follows."""


def stop_at(step: int) -> Callable[[Metrics], None]:
    def on_metrics(metrics: Metrics) -> None:
        if metrics["step"] == step:
            raise KeyboardInterrupt

    return on_metrics


def train_cases(folder: Path, cases: list[Case]) -> dict[str, tuple[dict[str, Tensor] | None, list[Metrics]]]:
    """What one of two processes does: weights (None where the other one has collected them) and metrics by case."""
    rank, found = dist.get_rank(), {}
    data: dict[str, Any] = {"loss": LossConfig(), "groups": GROUPS, "validation": HELD_OUT}
    for name, config, training, killed in cases:
        arguments = data | {"config": training, "checkpoint_dir": folder / name}
        if killed:
            with suppress(KeyboardInterrupt):
                train(model=RewardModel.from_config(config, WORDS, seed=rank, unread=True), on_metrics=stop_at(killed), **arguments)
        seed = 5 if killed else rank  # rank 0's weights count, and before them a checkpoint's
        model = RewardModel.from_config(config, WORDS, seed=seed, unread=True)
        history = train(model=model, on_metrics=nothing, **arguments).history
        found[name] = (model.state_dict() if model.device.type != "meta" else None, history)
    return found


SHARED = {"steps": 4, "validate_every": 2, "token_budget": GROUP_TOKENS, "ema_decay": 0.5, "freeze_vocabulary": True}
ADAPTED = {"steps": 4, "validate_every": 2, "adapter": "lora", "lora": LoraConfig(rank=4, alpha=8, vision=True)}
SLOWLY = {"learning_rate": 2e-6, "freeze_vocabulary": True, "steps": 3}
"""The paper's rate: in bf16 such steps leave nearly all weights as they are."""


@dataclass(frozen=True)
class TwoWorkers:
    """What two processes trained: weights (None where they are collected elsewhere) and metrics by case, of either process.

    folder: a folder of checkpoints per case. pretrained: the model whose backbone came from files in bf16.
    """

    folder: Path
    pretrained: RewardModelConfig
    of: tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> TwoWorkers:
    folder = tmp_path_factory.mktemp("two")
    backbone = BackboneConfig(pretrained=str(write_pretrained(folder / "backbone", WORDS)))
    presentation = RUBRICS.presentation.model_copy(update={"rubrics": dict.fromkeys(DIMENSIONS, "the circle")})
    pretrained = RUBRICS.model_copy(update={"backbone": backbone, "presentation": presentation})
    cases = {
        "ddp": (CONFIG, SHARED, None),
        "fsdp": (CONFIG, SHARED | {"parallel": "fsdp"}, None),
        "killed": (CONFIG, SHARED | {"parallel": "fsdp"}, 3),
        "few": (CONFIG, SHARED | ONE_GROUP, None),
        "few-fsdp": (CONFIG, SHARED | ONE_GROUP | {"parallel": "fsdp"}, None),
        "adapted": (RUBRICS, ADAPTED | {"parallel": "fsdp"}, None),  # its validation keeps the rubrics' keys and values
        "adapted-bf16": (RUBRICS, ADAPTED | {"parallel": "fsdp", "precision": "bf16", "activation_checkpointing": True}, None),
        "pretrained-ddp": (pretrained, SLOWLY, None),
        "pretrained-fsdp": (pretrained, SLOWLY | {"parallel": "fsdp"}, None),
        "pretrained-adapted": (pretrained, ADAPTED | {"parallel": "fsdp", "precision": "bf16", "steps": 3}, None),
    }
    listed = [(name, model, TRAINING.model_copy(update=changes), killed) for name, (model, changes, killed) in cases.items()]
    assert two_processes.start(train_cases, folder, listed)() == [0, 0]
    found, other = (torch.load(folder / f"rank{rank}.pt") for rank in (0, 1))
    for name, (_, changes, _) in cases.items():
        assert found[name][1] == other[name][1]
        assert (other[name][0] is None) == ("parallel" in changes)  # the shards are collected by the first worker alone
    return TwoWorkers(folder, pretrained, (found, other))


@pytest.mark.xdist_group("two workers")  # one process makes the fixture, and imports the libraries for all tests of the group
def test_two_workers_learn_what_one_learns(two: TwoWorkers, tmp_path: Path) -> None:
    """Shares of three groups and of two, one group a pass: the workers' numbers of passes differ. And a step of one group for both."""
    found, other = two.of
    assert_identical(found["ddp"][0], other["ddp"][0])
    assert_identical(found["killed"][0], found["fsdp"][0])
    assert found["killed"][1] == found["fsdp"][1]
    for names, changes in ((("ddp", "fsdp"), SHARED), (("few", "few-fsdp"), SHARED | ONE_GROUP)):
        single = make()
        history = run(single, tmp_path / f"single-{names[0]}", **changes)
        for name in names:
            assert_close(found[name][0], weights(single), 1e-4)
            for here, there in zip(found[name][1], history, strict=True):
                assert here == pytest.approx(there, abs=1e-3)
    files = {path.name for path in next((two.folder / "fsdp").iterdir()).iterdir()}
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata", "contents.json"} == files
    plain = make(config=RUBRICS)
    history = run(plain, tmp_path / "plain", **ADAPTED)
    assert_close(found["adapted"][0], weights(plain), 1e-4)
    for name, tolerance in (("adapted", 1e-3), ("adapted-bf16", 0.02)):
        assert list(found[name][0]) == list(weights(plain))
        assert [m["loss"] for m in found[name][1]] == pytest.approx([m["loss"] for m in history], abs=tolerance)
    changed = "backbone.visual.blocks.0.attn.qkv.weight"
    assert not torch.equal(found["adapted"][0][changed], weights(make(config=RUBRICS))[changed])


@pytest.mark.xdist_group("two workers")
def test_two_workers_learn_in_float32_from_files_in_bf16(two: TwoWorkers, tmp_path: Path) -> None:
    found, _ = two.of
    single = make(config=two.pretrained)
    before = weights(single)
    history = run(single, tmp_path / "single", **SLOWLY)
    after = weights(single)
    for name in ("pretrained-ddp", "pretrained-fsdp"):
        reached, metrics = found[name]
        assert {tensor.dtype for tensor in reached.values()} == {torch.float32}
        assert [m["loss"] for m in metrics] == pytest.approx([m["loss"] for m in history], abs=1e-4)
        apart, moved = (sum(float((reached[key] - of[key]).square().sum()) for key in after) for of in (after, before))
        assert apart < 1e-4 * moved, name
        learning = [key for key in after if key.startswith("backbone.") and "embed_tokens" not in key]
        changed = sum(int((reached[key] != before[key]).sum()) for key in learning) / sum(before[key].numel() for key in learning)
        assert changed > 0.99, name
    adapted, metrics = found["pretrained-adapted"]
    assert list(adapted) == list(before) and metrics[-1]["loss"] < metrics[0]["loss"]
    for key in ("visual.blocks.0.attn.qkv.weight", "language_model.layers.0.mlp.up_proj.weight"):
        assert (adapted[f"backbone.{key}"] != before[f"backbone.{key}"]).float().mean() > 0.99, key


def test_weights_in_half_precision_are_not_trained(tmp_path: Path) -> None:
    make().save(tmp_path / "model")
    half = RewardModel.load(tmp_path / "model", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"the weights are torch\.bfloat16, training needs torch\.float32; load the model in it"):
        run(half, tmp_path / "run")


# ------------------------------------------------------------------------------------------------------- curves and mistakes


def test_curves_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    history = run(make(), tmp_path)
    image = draw_curves({"pretraining": [], "training": history})
    assert image == draw_curves({"training": history})
    assert Image.open(io.BytesIO(image)).size == (1600, 300)
    assert image != draw_curves({"training": history[:-1]})
    with pytest.raises(ValueError, match="no metrics to draw"):
        draw_curves({"training": []})


def test_broken_weights_end_the_run(tmp_path: Path) -> None:
    model = make()
    with torch.no_grad():
        model.heads.of["visual_quality"].mlp[0].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"loss is nan at step 1; lower the learning rate or clip_norm, or check the weights"):
        run(model, tmp_path)


def test_settings_of_unused_adapters_are_refused() -> None:
    with pytest.raises(ValueError, match="adapter is full, which uses none"):
        TrainingConfig(lora=LoraConfig(rank=8))


def test_gauges_show_numbers_and_rates(cluster: Cluster) -> None:
    gauges = Gauges("test_training", tags={"run": "r"}, per_step={"pairs": 21.0}, write=True)
    gauges.show({"step": 10, "validation/accuracy": 0.5, "phase": "training"})
    gauges.show({"step": 20, "loss": 0.5})  # at once after the one before, as when a resumed training repeats its reports
    assert not any("per_second" in name for name in gauges._gauges)
    gauges._last = (20, time.monotonic() - 1)
    gauges.show({"step": 30})
    assert {gauge.info["name"] for gauge in gauges._gauges.values()} == {
        "test_training_step",
        "test_training_validation_accuracy",
        "test_training_loss",
        "test_training_pairs_per_second",
    }
    silent = Gauges("test_training", tags={}, per_step={}, write=False)
    silent.show({"step": 10})
    assert not silent._gauges
