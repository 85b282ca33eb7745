"""Rehearsals on the meta device: published models run forward and backward at full size, and a fault is found with its place."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from paths import ROOT
from torch import Tensor
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2MLP

from pipeline import config
from pipeline.planning.compute import compute_of
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inference.compute import PassCost
from reward.rehearsal import rehearse
from reward.rehearsal.gauge import Gauge, RehearsalError, half_precision
from reward.rehearsal.meta_model import build_meta_model, knows_sizes, word_tokenizer
from reward.rehearsal.rehearse import rehearse_scoring, rehearse_training
from reward.training.config import LoraConfig, LossConfig, TrainingConfig

PUBLISHED = {  # parameters of the published files, the output layer included where it is no copy of the embedding
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "XiaomiMiMo/MiMo-VL-7B-SFT-2508": 8_306_217_216,  # of the sizes as described; not compared with the files
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
}
TINY = RewardModelConfig(presentation=PresentationConfig(layout="images", prompt="reference"), heads=HeadConfig(hidden=(8,)))
HALF = TrainingConfig(precision="bf16", groups_per_batch=2)


def paper(name: str) -> Any:
    family = "qwen3_vl" if "Qwen3" in name else "qwen2_5_vl"
    keys = [f"reward.model.backbone.pretrained={name}", f"reward.model.backbone.family={family}"]
    return config.load(ROOT / "configs" / "paper.yaml", keys).flow.reward


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_rehearse_at_full_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one pair in bf16 under FSDP with recomputation. Operations forward are those that `PassCost` counts."""
    reward = paper(name)
    counted = []

    def figures(gauge: Gauge, batch: Any) -> Any:
        counted.append(PassCost(model.backbone).flop(batch))
        return kept(gauge, batch)

    kept = rehearse._figures
    model = build_meta_model(reward.model, "word").model
    monkeypatch.setattr(rehearse, "_figures", figures)
    step = rehearse_training(reward.model, reward.training, reward.loss, candidates=7, ranks=16)
    text = model.backbone.config.text_config
    output_layer = 0 if model.backbone.config.tie_word_embeddings else text.vocab_size * text.hidden_size
    assert sum(parameter.numel() for parameter in model.backbone.parameters()) + output_layer == PUBLISHED[name]
    assert sum(parameter.numel() for parameter in model.parameters()) == step.parameters
    assert (step.groups, step.forward.edits, step.forward.patches) == (1, 2, 3 * (28**2 if "Qwen3" in name else 32**2))
    assert step.forward.flop == pytest.approx(counted[0], rel=0.01)
    assert 3.5 < step.whole.flop / step.forward.flop < 4  # once more for the recomputation, twice for the gradients
    assert step.whole.kernels > step.forward.kernels > 1000
    assert step.memory.weights == 4 * step.parameters // 16 and step.memory.optimizer == 8 * step.learning // 16


def test_a_scoring_pass_rehearses_at_full_size() -> None:
    model = paper("Qwen/Qwen2.5-VL-3B-Instruct").model
    scored = rehearse_scoring(model, sources=10, candidates=1, token_budget=3000)
    assert scored.figures.edits == 3 and scored.figures.tokens < 3000 and scored.sizes_from == "sizes/Qwen2.5-VL-3B.json"
    assert scored.text_from.startswith("an estimate")


def reads_an_item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def reads_a_list(x: Tensor) -> Tensor:
    return x[: len(x.flatten().tolist())]


def selects_by_mask(x: Tensor) -> Tensor:
    return x[x > 0].sum() + x


def branches_on_a_value(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def makes_a_tensor_on_the_cpu(x: Tensor) -> Tensor:
    return x + torch.ones(x.shape[-1]).to(x.device)


def mixes_devices(x: Tensor) -> Tensor:
    return x.index_select(-1, torch.zeros(1, dtype=torch.int64)) + x


def does_not_fit(x: Tensor) -> Tensor:
    return torch.cat([x, x[..., 1:]], dim=0)


FAULTS = {
    reads_an_item: "a value is read back from the device",
    reads_a_list: "a value is read back from the device",
    selects_by_mask: "a value is read back from the device",
    branches_on_a_value: "a value is read back from the device",
    makes_a_tensor_on_the_cpu: "tensor of the CPU",
    mixes_devices: "tensor of the CPU",
    does_not_fit: "Sizes of tensors must match",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", ["the training step", "the scoring pass"])
def test_a_fault_in_a_layer_ends_it_with_its_place(fault: Callable[[Tensor], Tensor], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Qwen2MLP.forward
    monkeypatch.setattr(Qwen2MLP, "forward", lambda self, x: plain(self, fault(x)))
    with pytest.raises(RehearsalError) as error:
        if part == "the training step":
            rehearse_training(TINY, HALF, LossConfig(), candidates=3, ranks=1)
        else:
            rehearse_scoring(TINY, sources=2, candidates=1, token_budget=10_000)
    line = inspect.getsourcelines(fault)[1] + 1
    assert str(error.value).startswith(f"{part} fails at tests/reward/test_rehearsal.py:{line} ({fault.__name__}): ")
    assert FAULTS[fault] in str(error.value)


def test_a_fault_in_the_backward_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # ty: ignore[invalid-method-override]
            return grad * grad.sum().item()

    plain = Qwen2MLP.forward
    monkeypatch.setattr(Qwen2MLP, "forward", lambda self, x: plain(self, Reads.apply(x)))
    with pytest.raises(RehearsalError, match=r"test_rehearsal\.py:\d+ \(backward\): a value is read back"):
        rehearse_training(TINY, HALF, LossConfig(), candidates=3, ranks=1)


def test_memory_of_a_gpu_by_hand() -> None:
    """float32 weights, gradients and two averages of AdamW; fsdp keeps a share; adapters alone have gradients; recomputation needs less."""
    step = rehearse_training(TINY, HALF, LossConfig(), candidates=3, ranks=1)
    n = step.parameters
    assert step.learning == n and vars(step.memory) | {"activations": 0} == {
        "weights": 4 * n, "gradients": 4 * n, "optimizer": 8 * n, "averages": 0, "working_weights": 0, "buckets": 0, "activations": 0
    }  # fmt: skip
    shared = HALF.model_copy(update={"parallel": "fsdp", "activation_checkpointing": True, "ema_decay": 0.9})
    sharded = rehearse_training(TINY, shared, LossConfig(), candidates=3, ranks=2)
    assert sharded.memory.weights == 2 * n and sharded.memory.averages == 2 * n and 0 < sharded.memory.working_weights < 8 * n
    assert sharded.groups == 1 and sharded.memory.activations < step.memory.activations / 2
    lora = HALF.model_copy(update={"adapter": "lora", "lora": LoraConfig(rank=2), "activation_checkpointing": True})
    adapted = rehearse_training(TINY, lora, LossConfig(), candidates=3, ranks=2)
    assert adapted.memory.working_weights == 2 * adapted.learning  # what autocast keeps
    assert adapted.parameters > n > 5 * adapted.learning and adapted.memory.gradients == adapted.memory.buckets == 4 * adapted.learning


def test_the_gauge_counts_what_is_alive_and_what_is_launched() -> None:
    old = torch.empty(1000, device="meta")
    with Gauge({}) as gauge:
        first = old + 1  # 4000 bytes
        second = (first * 2).view(10, 100)  # 8000 alive
        del first
        third = second @ second.t()  # 4000 and 400
    assert (gauge.peak, gauge.kernels, gauge.flop) == (8000, 3, 2 * 10 * 100 * 10) and third.shape == (10, 10)


def test_half_precision_is_that_of_autocast() -> None:
    """Products in bfloat16 over float32 weights, but not in the module that turns autocast off."""
    part, free = torch.nn.Linear(4, 4, device="meta"), torch.nn.Linear(4, 4, device="meta")
    x = torch.empty(2, 4, device="meta")
    with half_precision(free):
        assert part(x).dtype == F.linear(x, part.weight).dtype == torch.bfloat16 and free(x).dtype == torch.float32
        assert part(x).dtype == torch.bfloat16 and (x * x).dtype == torch.float32
    assert part(x).dtype == torch.float32


def test_sizes_come_from_a_directory_or_a_shipped_file(tmp_path: Path) -> None:
    shipped = json.loads((ROOT / "reward" / "rehearsal" / "sizes" / "Qwen2.5-VL-3B.json").read_text())
    shipped["text_config"] |= {"num_hidden_layers": 1, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(shipped))
    presentation = PresentationConfig(layout="images", prompt="reference")
    own = RewardModelConfig(backbone=BackboneConfig(pretrained=str(tmp_path)), presentation=presentation)
    built = build_meta_model(own, "word")
    assert len(built.model.backbone.language_model.layers) == 1 and built.sizes_from == str(tmp_path / "config.json")
    assert {parameter.device.type for parameter in built.model.parameters()} == {"meta"}
    (tmp_path / "config.json").write_text(json.dumps(shipped | {"text_config": shipped["text_config"] | {"num_attention_heads": 0}}))
    with pytest.raises(ValueError, match=r"no model can be built with the sizes in .*config\.json \(.*\); correct them"):
        build_meta_model(own, "word")
    unknown = BackboneConfig(pretrained="someone/Qwen2.5-VL-32B")
    assert not knows_sizes(unknown)
    with pytest.raises(ValueError, match=r"the sizes of someone/Qwen2\.5-VL-32B are unknown; name a directory"):
        build_meta_model(RewardModelConfig(backbone=unknown, presentation=presentation), "word")
    other = BackboneConfig(pretrained="Qwen/Qwen3-VL-4B-Instruct")
    with pytest.raises(ValueError, match=r"backbone\.family is qwen2_5_vl, but .*Qwen3-VL-4B\.json is of qwen3_vl"):
        build_meta_model(RewardModelConfig(backbone=other, presentation=presentation), "word")
    plan = compute_of(RewardModelConfig(backbone=unknown, presentation=presentation), TrainingConfig(), 7)
    assert plan.trained is plan.group is plan.edit is None and "not known" in plan.method


def test_text_without_a_tokenizer_is_counted_by_words_and_marks() -> None:
    ids = word_tokenizer()("Rate the edit, from 1 to 4.\n\n<|Reward|>", add_special_tokens=False)["input_ids"]
    assert len(ids) == 11  # eight words and numbers, a comma, a full stop, a run of line breaks, less one: the reward token has an id
