"""LoRA adapters: their sizes, and files in both published layouts."""

from pathlib import Path

import pytest
import torch
from diffusers.loaders import FluxLoraLoaderMixin
from safetensors.torch import load_file, save_file
from step1x_computation import released_tensors
from tiny_step1x import SIZES
from torch import Tensor, nn

from finetune.adapter_files import load_adapters, save_diffusers, save_kohya
from finetune.adapters import adapters, add_adapters
from finetune.config import AdapterLayout
from finetune.families import open_model, without_weights
from finetune.step1x.config import Step1XConfig, Step1XSizes
from finetune.step1x.denoiser import Step1XEdit
from finetune.step1x.loading import denoiser_path
from reward.trainer.config import AdapterConfig

CPU, META = torch.device("cpu"), torch.device("meta")
LAYOUTS: list[AdapterLayout] = ["fused", "split"]


def tiny(folder: Path) -> Step1XEdit:
    config = Step1XConfig(directory=str(folder), sizes=SIZES)
    save_file(released_tensors(SIZES), denoiser_path(config))
    return open_model(config, CPU)


def predict(model: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    latents, states = torch.randn(2, 2, 4, 4, 4, generator=generator), torch.randn(1, 7, 16, generator=generator)
    with torch.no_grad():
        return model(latents[0], latents[1], torch.tensor([0.2, 0.9]), model.collate([{"states": states[0]}] * 2))


def randomised(model: nn.Module) -> nn.Module:
    """Adapters that are no longer zero."""
    generator = torch.Generator().manual_seed(4)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 8
    return model


@pytest.mark.parametrize(("layout", "parameters"), [("fused", 306_315_264), ("split", 343_670_784)])
def test_sizes_at_rank_64(layout: AdapterLayout, parameters: int) -> None:
    model = without_weights(Step1XConfig(directory="none"))
    add_adapters(model, AdapterConfig(rank=64, alpha=32), layout, seed=0, device=META)
    assert sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) == parameters
    layers = [one.layer for one in adapters(model)]
    assert len(layers) == 494 and not any("connector" in layer for layer in layers)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_new_adapters_change_nothing_and_others_do(tmp_path: Path, layout: AdapterLayout) -> None:
    model = tiny(tmp_path)
    base = predict(model)
    add_adapters(model, AdapterConfig(rank=4, alpha=2), layout, seed=0, device=CPU)
    assert torch.equal(predict(model), base)
    assert not torch.allclose(predict(randomised(model)), base, atol=1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_files_give_the_library_the_same_updates(tmp_path: Path, layout: AdapterLayout) -> None:
    """At the released width, which the library's conversion of kohya's names has built in; weights of the model stay without memory."""
    with torch.device("meta"):
        model = Step1XEdit(Step1XSizes(double_blocks=1, single_blocks=1), 640)
    add_adapters(model, AdapterConfig(rank=4, alpha=3), layout, seed=0, device=CPU)
    randomised(model)
    save_diffusers(model, tmp_path / "diffusers.safetensors", torch.float32)
    save_kohya(model, tmp_path / "kohya.safetensors", torch.float32)
    expected = {one.layer: one for one in adapters(model)}
    kohya = load_file(tmp_path / "kohya.safetensors")
    assert len(kohya) == 3 * (10 + 3)  # adapters of joined layers in one double and one single block
    assert len(kohya["lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight"]) == (4 if layout == "fused" else 12)
    for file in ("diffusers", "kohya"):
        state = FluxLoraLoaderMixin.lora_state_dict(load_file(tmp_path / f"{file}.safetensors"))
        assert {name.rsplit(".lora_", 1)[0] for name in state} == expected.keys()
        for layer, one in expected.items():
            probe = torch.randn(one.down.shape[1], 2, generator=torch.Generator().manual_seed(5))
            update = state[f"{layer}.lora_B.weight"] @ (state[f"{layer}.lora_A.weight"] @ probe)
            assert torch.allclose(update, one.scale * one.up @ (one.down @ probe), atol=1e-5), layer


@pytest.mark.parametrize("layout", LAYOUTS)
def test_library_loads_an_exported_file_into_the_same_editor(tmp_path: Path, layout: AdapterLayout) -> None:
    model = tiny(tmp_path)
    base = predict(model)
    add_adapters(model, AdapterConfig(rank=4, alpha=2), layout, seed=0, device=CPU)
    randomised(model)
    save_diffusers(model, tmp_path / "lora.safetensors", torch.float32)
    other = tiny(tmp_path)
    load_adapters(other.transformer, tmp_path / "lora.safetensors")
    assert not torch.allclose(predict(other), base, atol=1e-2)
    assert torch.allclose(predict(other), predict(model), atol=1e-6)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    for tensors in ({"weight": torch.zeros(2)}, {"transformer.nothing.lora_A.weight": torch.zeros(2, 2)}):
        save_file(tensors, path)
        with pytest.raises(ValueError, match=r"other\.safetensors contains no LoRA adapters of this model"):
            load_adapters(tiny(tmp_path).transformer, path)
