"""The objective: its times, its dropout, and what a tiny Step1X-Edit learns by it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from pydantic import TypeAdapter, ValidationError
from tiny_step1x import write_step1x
from torch import Tensor

from finetune.adapters import add_adapters
from finetune.config import RELEASED_STEP1X_FLOW, FlowSetting, RectifiedFlowConfig, SamplingConfig
from finetune.editing_model import Condition, Moments
from finetune.families import open_model
from finetune.rectified_flow import Draws, batch_loss, draw, interpolate, sampling_times, shift_time, with_dropout
from finetune.sampling import sample_edits, sample_latents
from finetune.step1x.config import Step1XConfig
from finetune.step1x.denoiser import Step1XEdit
from finetune.step1x.encoders import Step1XEncoders
from finetune.step1x.loading import denoiser_path, export_weights
from finetune.training.loading import PreparedPair
from finetune.training.objective import batch_of
from finetune.training.pairs import Bucket
from reward.trainer.config import AdapterConfig

CPU = torch.device("cpu")
SHAPE = (4, 8, 8)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Step1XConfig:
    return write_step1x(tmp_path_factory.mktemp("step1x"))


@pytest.fixture(scope="module")
def encoders(config: Step1XConfig) -> Step1XEncoders:
    return Step1XEncoders.load(config, CPU)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(config: RectifiedFlowConfig, count: int = 4000, shift: float = 1.88) -> Draws:
    return draw(config, generator(), count, (1, 1, 1), (1, 1, 1), shift)


def test_times_are_the_shifted_sigmoid_of_a_normal() -> None:
    time = drawn(RectifiedFlowConfig(logit_scale=1.3, time_shift=2.5)).time
    assert time.dtype == torch.float32
    normal = (torch.logit(time.double()) - math.log(2.5)) / 1.3  # a shift adds log s to the logit
    assert normal.mean().abs() < 0.05 and (normal.std() - 1).abs() < 0.05


def test_shift_follows_the_sampler_or_is_fixed() -> None:
    u = drawn(RectifiedFlowConfig(time_shift=1.0)).time
    assert torch.allclose(drawn(RectifiedFlowConfig(), shift=1.88).time, shift_time(u, 1.88))
    assert torch.allclose(drawn(RELEASED_STEP1X_FLOW, shift=1.88).time, shift_time(u, 3.1582))


def test_released_setting_has_a_name() -> None:
    parse = TypeAdapter(FlowSetting).validate_python
    assert parse("step1x-released") == RELEASED_STEP1X_FLOW == RectifiedFlowConfig(time_shift=3.1582, condition_dropout=0)
    assert parse({"condition_dropout": 0.2}).condition_dropout == 0.2
    with pytest.raises(ValidationError, match="there is no rectified flow named 'step2x'; known: step1x-released"):
        parse("step2x")


def test_resolution_shift_is_the_released_one(config: Step1XConfig) -> None:
    model = open_model(config, CPU)
    shifts = [model.resolution_shift(side // 8, side // 8) for side in (512, 768, 1024)]
    assert shifts == pytest.approx([1.8776, 2.3319, 3.1582], abs=1e-4)
    mu = 0.5 + 0.65 * (84 * 48 // 4 - 256) / 3840
    t = torch.linspace(1, 0, 29)[1:-1]
    times = sampling_times(28, model.resolution_shift(84, 48))[1:-1]
    assert torch.allclose(times, math.exp(mu) / (math.exp(mu) + (1 / t - 1)))


def test_dropped_samples_get_their_null_condition() -> None:
    dropped = drawn(RectifiedFlowConfig(condition_dropout=0.1)).dropped
    assert 0.08 < dropped.float().mean() < 0.12
    assert not drawn(RectifiedFlowConfig(condition_dropout=0)).dropped.any()
    conditions, nulls = ([{"states": torch.full((1, 1), value)} for value in values] for values in ((1.0, 2.0), (-1.0, -2.0)))
    assert [one["states"].item() for one in with_dropout(conditions, nulls, torch.tensor([False, True]))] == [1, -2]


def test_ends_of_the_path(config: Step1XConfig) -> None:
    x0, noise = torch.randn(2, *SHAPE), torch.randn(2, *SHAPE)
    assert torch.equal(interpolate(x0, noise, torch.zeros(2)), x0) and torch.equal(interpolate(x0, noise, torch.ones(2)), noise)


class Recorder:
    """A model that keeps what it is given and predicts zero."""

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        return {"number": torch.cat([condition["number"] for condition in conditions])}

    def __call__(self, *given: Any) -> Tensor:
        self.given = given
        return torch.zeros_like(given[0])


def test_target_and_reference_of_every_pair_are_sampled_with_their_own_draws() -> None:
    flow, rng = RectifiedFlowConfig(), generator()

    def moments() -> Moments:
        return Moments(torch.randn(SHAPE, generator=rng), torch.rand(SHAPE, generator=rng))

    pairs = [
        PreparedPair(Bucket(8, 8, 8, 8), moments(), moments(), {"number": torch.tensor([number])}, draw(flow, rng, 1, SHAPE, SHAPE, 1.0))
        for number in range(3)
    ]
    model: Any = Recorder()
    loss = batch_loss(model, *batch_of(model, pairs, CPU))
    x0 = torch.stack([pair.target.mean + pair.target.deviation * pair.draws.target[0] for pair in pairs])
    reference = torch.stack([pair.reference.mean + pair.reference.deviation * pair.draws.reference[0] for pair in pairs])
    noise, time = torch.cat([pair.draws.noise for pair in pairs]), torch.cat([pair.draws.time for pair in pairs])
    weight = time.view(-1, 1, 1, 1)
    noisy, seen, at, condition = model.given
    assert torch.equal(noisy, (1 - weight) * x0 + weight * noise) and torch.equal(seen, reference) and torch.equal(at, time)
    assert condition["number"].tolist() == [0, 1, 2]
    torch.testing.assert_close(loss, ((noise - x0) ** 2).mean())


def test_training_and_sampling_embed_equal_times(config: Step1XConfig) -> None:
    """At one time, connector and denoiser get the same numbers and the model answers the same, whichever path calls it."""
    model = open_model(config, CPU)
    seen: list[Tensor] = []
    for part in (model.connector.refiner, model.transformer):
        part.time_text_embed.time_proj.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    reference, noise, target = torch.randn(3, 1, *SHAPE, generator=generator())
    condition = {"states": torch.randn(9, 16, generator=generator())}
    sampling = SamplingConfig(steps=5, guidance=1)
    sample_latents(model, reference, [condition], [], noise, sampling)
    sampled = list(seen)
    seen.clear()
    times = sampling_times(5, model.resolution_shift(8, 8))
    zero = torch.zeros(1, *SHAPE)
    for time in times[:-1]:
        draws = Draws(time[None], noise, zero, zero, torch.zeros(1))
        batch_loss(model, Moments(target, zero), Moments(reference, zero), model.collate([condition]), draws)
    assert len(seen) == len(sampled) == 10 and all(torch.equal(a, b) for a, b in zip(seen, sampled, strict=True))
    assert torch.equal(torch.cat(seen[::2]), 1000 * times[:-1]) and torch.equal(torch.cat(seen[1::2]), 1000 * times[:-1])


def triplet() -> tuple[Image.Image, str, Image.Image]:
    source = Image.fromarray(np.random.default_rng(0).integers(96, 160, (64, 64, 3), dtype=np.uint8))
    edited = source.copy()
    ImageDraw.Draw(edited).rectangle((16, 16, 47, 47), fill=(250, 30, 30))
    return source, "paint a red square", edited


def psnr(one: Image.Image, other: Image.Image) -> float:
    error = np.square(np.asarray(one, float) - np.asarray(other, float)).mean()
    return 10 * math.log10(255**2 / error)


def learn(model: Step1XEdit, encoders: Step1XEncoders, steps: int, rate: float) -> list[float]:
    """Training on the one triplet, four draws per step; the losses."""
    source, instruction, edited = triplet()
    condition, null = (encoders.encode_condition(source, text) for text in (instruction, ""))
    moments = encoders.encode_images([source, edited])
    reference, target = (Moments(one.mean.expand(4, *SHAPE), one.deviation.expand(4, *SHAPE)) for one in moments)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        draws = draw(RectifiedFlowConfig(condition_dropout=0.1), generator(step), 4, SHAPE, SHAPE, model.resolution_shift(8, 8))
        collated = model.collate(with_dropout([condition] * 4, [null] * 4, draws.dropped))
        loss = batch_loss(model, target, reference, collated, draws)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def test_adapters_and_connector_learn_a_triplet(config: Step1XConfig, encoders: Step1XEncoders) -> None:
    model = open_model(config, CPU)
    add_adapters(model, AdapterConfig(rank=8, alpha=8), "fused", seed=0, device=CPU)
    model.connector.requires_grad_(True)
    losses = learn(model, encoders, 40, 1e-2)
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])


def test_one_triplet_is_learnt_until_its_edit_is_sampled(config: Step1XConfig, encoders: Step1XEncoders, tmp_path: Path) -> None:
    """The sampled edit matches the target, as the VAE shows it, with a PSNR of 27 dB; before, and of the source, 16 dB."""
    source, instruction, edited = triplet()
    shown = encoders.decode(encoders.encode_images([edited])[0].mean[None])[0]
    model = open_model(config, CPU)

    def sampled(editor: Step1XEdit, seed: int) -> Image.Image:
        return sample_edits(editor, encoders, [source], [instruction], [seed], SamplingConfig(steps=28, guidance=2, side=64))[0]

    assert psnr(sampled(model, 7), shown) < 18
    learn(model, encoders, 200, 1e-2)
    edit = sampled(model, 7)
    assert psnr(edit, shown) > 25
    assert sampled(model, 8) != edit
    exported = config.model_copy(update={"denoiser": str(tmp_path / "exported.safetensors")})
    export_weights(model, denoiser_path(exported))
    assert sampled(open_model(exported, CPU), 7) == edit
