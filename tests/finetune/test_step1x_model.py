"""Step1X-Edit v1.0's trained half: its computation, its sizes and its released file."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from step1x_computation import connector, released_tensors, velocity
from torch.utils.flop_counter import FlopCounterMode

from finetune.families import check_files, open_model, without_weights
from finetune.step1x.config import Step1XConfig, Step1XSizes
from finetune.step1x.denoiser import Step1XEdit
from finetune.step1x.loading import denoiser_path, export_weights, stored_rows

SIZES = Step1XSizes(
    double_blocks=2,
    single_blocks=2,
    heads=2,
    rope_axes=(4, 6, 6),
    connector_blocks=2,
    connector_heads=2,
    connector_head_dim=8,
    vlm_width=12,
    pooled_width=10,
    latent_channels=4,
)
CPU = torch.device("cpu")


@pytest.fixture
def config(tmp_path: Path) -> Step1XConfig:
    """A released file of the tiny size."""
    config = Step1XConfig(directory=str(tmp_path), sizes=SIZES)
    save_file(released_tensors(SIZES), denoiser_path(config), metadata={"format": "pt"})
    return config


def inputs(seed: int = 1) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    noisy, reference = (torch.randn(2, 4, 6, 8, generator=generator) for _ in range(2))
    return noisy, reference, torch.tensor([0.777, 0.501]), torch.randn(5, 12, generator=generator), torch.randn(3, 12, generator=generator)


def test_equals_the_documented_computation(config: Step1XConfig) -> None:
    """In float64, but for the sinusoids of the time, which both compute in float32."""
    model = open_model(config, CPU, torch.float64)
    tensors = {name: tensor.double() for name, tensor in load_file(denoiser_path(config)).items()}
    noisy, reference, time, *states = inputs()
    condition = model.collate([{"states": one.double()} for one in states])
    assert condition["states"].shape == (2, 640, 12) and condition["mask"].sum(1).tolist() == [5, 3]
    with torch.no_grad():
        ours = model.connector(condition["states"], time, condition["mask"])
        plain = connector(tensors, SIZES, condition["states"], time, condition["mask"])
        assert all((one - two).abs().max() <= 1e-6 for one, two in zip(ours, plain, strict=True))
        ours = model(noisy.double(), reference.double(), time, condition)
        plain = velocity(tensors, SIZES, noisy.double(), reference.double(), time, condition["states"], condition["mask"])
    assert (ours - plain).abs().max() <= 1e-6 and plain.std() > 0.5


def test_reference_has_the_positions_of_the_target(config: Step1XConfig) -> None:
    """Exchanging target and reference tokens exchanges the outputs only if both images have the same positions."""
    model = open_model(config, CPU)
    noisy, reference, time, *states = inputs()
    seen = []
    model.transformer.register_forward_pre_hook(lambda _, arguments, keywords: seen.append(keywords["img_ids"]), with_kwargs=True)
    model(noisy, reference, time, model.collate([{"states": one} for one in states]))
    target, source = seen[0].chunk(2)
    assert torch.equal(target, source) and target[:, 0].unique().tolist() == [0] and target[-1].tolist() == [0, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_time_is_exact_up_to_its_sinusoid(config: Step1XConfig, dtype: torch.dtype) -> None:
    model = open_model(config, CPU, dtype)
    noisy, reference, time, *states = inputs()
    seen = []
    for embedder in (model.transformer.time_text_embed, model.connector.refiner.time_text_embed):
        embedder.time_proj.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    model(noisy, reference, time, model.collate([{"states": one} for one in states]))
    assert len(seen) == 2
    for embedded in seen:
        assert embedded.dtype == torch.float32 and torch.equal(embedded, 1000 * time)  # in bf16: 776 and 500


def test_released_sizes() -> None:
    model = without_weights(Step1XConfig(directory="none"))
    count = {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in model.named_children()}
    assert count == {"connector": 536_621_825, "transformer": 11_891_178_560}


@pytest.mark.parametrize(("side", "tera"), [(512, 39.8), (768, 87.0), (1024, 168.7)])
def test_forward_flop_at_released_sizes(side: int, tera: float) -> None:
    """Of the denoiser; the connector adds 0.55."""
    with torch.device("meta"):
        model = Step1XEdit(Step1XSizes(), 640)
        latents, states = torch.empty(1, 16, side // 8, side // 8), torch.empty(1, 640, 3584)
        with FlopCounterMode(display=False) as counter:
            model(latents, latents, torch.empty(1), {"states": states, "mask": torch.ones(1, 640, dtype=torch.bool)})
    flop = counter.get_flop_counts()
    assert sum(flop["Step1XEdit.transformer"].values()) / 1e12 == pytest.approx(tera, rel=1e-3)
    assert round(sum(flop["Step1XEdit.connector"].values()) / 1e12, 2) == 0.55


def test_export_gives_the_bytes_of_the_released_file(config: Step1XConfig, tmp_path: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in released_tensors(SIZES).items()}
    tensors["connector.scale_factor"] = tensors["connector.scale_factor"].float()  # a file may mix types
    save_file(tensors, denoiser_path(config), metadata={"format": "pt"})
    export_weights(open_model(config, CPU), tmp_path / "exported.safetensors", metadata={"format": "pt"})
    assert (tmp_path / "exported.safetensors").read_bytes() == denoiser_path(config).read_bytes()


def test_rows_of_every_weight_can_be_read_apart(config: Step1XConfig) -> None:
    model = open_model(config, CPU)
    for name, read in stored_rows(config, model).items():
        weight = model.get_parameter(name).detach()
        cut = len(weight) // 3
        assert torch.equal(torch.cat([read(0, cut), read(cut, len(weight)), read(len(weight), len(weight))]), weight)


def test_other_files_are_refused_with_the_difference(config: Step1XConfig, tmp_path: Path) -> None:
    path = denoiser_path(config)
    tensors = released_tensors(SIZES)

    def refused(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, path)
        with pytest.raises(ValueError, match=str(path)) as caught:
            open_model(config, CPU)
        return str(caught.value)

    message = refused(tensors | {"connector.extra_linear.weight": torch.zeros(2)})
    assert "it has besides connector.extra_linear.weight" in message
    assert "it lacks connector.S.c_embedder.linear_1.bias, " in refused({"transformer_blocks.0.attn.to_q.weight": torch.zeros(2)})
    message = refused(tensors | {"img_in.weight": torch.zeros(32, 64)})
    assert "img_in.weight is [32, 64], the configured sizes need [32, 16]" in message
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        open_model(config, CPU)
    path.unlink()
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        open_model(config, CPU)


def test_other_versions_are_named_with_their_difference(config: Step1XConfig, tmp_path: Path) -> None:
    """In one file, in diffusers' layout, and one of several files, which tells nothing by itself."""
    names = set(released_tensors(SIZES)) - {"connector.scale_factor"}
    fork = {"time_embed.in_layer.weight", "connector.global_proj_out.weight", "transformer_blocks.0.attn.to_q.weight"}
    mapping = {"text_token_mapping.weight", "text_token_mapping.bias"}
    path = denoiser_path(config)
    for found, said in (
        (names, "is Step1X-Edit v1.1: it has no connector.scale_factor, and places the reference image at other positions"),
        (names | mapping, "is Step1X-Edit v1.2: it has text_token_mapping.weight, a second way of the text into the denoiser"),
        (fork, "is Step1X-Edit v1.1 in diffusers' layout: it has no connector.scale_factor"),
        (fork | mapping, "is Step1X-Edit v1.2 in diffusers' layout: it has text_token_mapping.weight"),
    ):
        save_file({name: torch.zeros(1) for name in found}, path)
        with pytest.raises(ValueError, match=re.escape(f"{path} {said}")) as caught:
            open_model(config, CPU)
        version = "1.2" if mapping <= found else "1.1"
        assert str(caught.value).endswith(
            f"use v1.0, step1x-edit-i1258.safetensors of stepfun-ai/Step1X-Edit, or for edits alone the editor step1x-edit-v{version}"
        )
    save_file({"single_transformer_blocks.3.proj_out.weight": torch.zeros(1)}, path)
    index = tmp_path / "diffusion_pytorch_model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": dict.fromkeys(fork | mapping, "another") | {"single_transformer_blocks.3.proj_out.weight": path.name}})
    )
    with pytest.raises(ValueError, match=r"is Step1X-Edit v1\.2 in diffusers' layout"):
        open_model(config, CPU)
    index.write_text("{")
    with pytest.raises(ValueError, match=r"is not Step1X-Edit v1\.0 of the configured sizes"):
        open_model(config, CPU)
    for pipeline, version in (("Step1XEditPipeline", "1.1"), ("Step1XEditPipelineV1P2", "1.2")):
        (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))
        with pytest.raises(ValueError, match=rf"{tmp_path} is Step1X-Edit v{version} in diffusers' layout: "):
            check_files(config)
