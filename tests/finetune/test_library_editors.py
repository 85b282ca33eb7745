"""FLUX.1-Kontext and Qwen-Image-Edit-2511 as editing models: equal to diffusers' pipelines, trained by the trainer of Step1X-Edit."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as qwen_pipeline
from PIL import Image
from tiny_editing import PairsInMemory
from tiny_editors import kontext, qwen_2511
from tiny_step1x import write_step1x
from torch import nn

from finetune import families
from finetune.config import AdapterLayout, RectifiedFlowConfig, SamplingConfig
from finetune.editing_model import Condition, Encoders
from finetune.library_editors.config import KontextConfig, PretrainedEditorConfig, QwenImageEditConfig
from finetune.library_editors.kontext import KontextEncoders
from finetune.library_editors.qwen_image_edit import QwenImageEditEncoders
from finetune.packing import pack, unpack
from finetune.precompute.encode import encode_null, encode_pair
from finetune.sampling import sample_latents
from finetune.step1x.encoders import Step1XEncoders
from finetune.training.config import LargeTrainingConfig, ProgressConfig
from finetune.training.train import train
from reward.trainer.config import AdapterConfig
from stages.finetune import large
from stages.finetune.config import LargeFinetuneConfig

CPU = torch.device("cpu")
SIZE = (96, 64)


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8))


def seeded(make: Callable[[], Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def kontext_editor(folder: Path) -> tuple[KontextConfig, Any, KontextEncoders]:
    pipeline = seeded(kontext)
    pipeline.save_pretrained(folder)
    config = KontextConfig(directory=str(folder), text_tokens=12)
    return config, pipeline, KontextEncoders(pipeline, 12)


def qwen_editor(folder: Path) -> tuple[QwenImageEditConfig, Any, QwenImageEditEncoders]:
    pipeline = seeded(qwen_2511)
    pipeline.scheduler.register_to_config(base_shift=0.5, max_shift=0.9, max_image_seq_len=8192, shift_terminal=0.02)
    pipeline.save_pretrained(folder)
    before = pipeline.prompt_template_encode.partition("{}")[0]
    config = QwenImageEditConfig(directory=str(folder), vlm_side=96, prefix_tokens=len(pipeline.tokenizer(before)["input_ids"]))
    return config, pipeline, QwenImageEditEncoders(pipeline, 96, config.prefix_tokens)


def step1x_editor(folder: Path) -> tuple[PretrainedEditorConfig, None, Step1XEncoders]:
    folder.mkdir()
    config = write_step1x(folder)
    return config, None, Step1XEncoders.load(config, CPU)


def sampled(config: PretrainedEditorConfig, encoders: Encoders, noise: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    model: Any = families.open_model(config, CPU)
    conditions, nulls = ([encoders.encode_condition(picture(), text)] for text in ("go red", ""))
    reference = encoders.encode_images([picture()])[0].mean[None]
    return sample_latents(model, reference, conditions, nulls if sampling.guidance != 1 else [], noise, sampling)


def test_kontext_samples_what_its_pipeline_does(tmp_path: Path) -> None:
    config, pipeline, encoders = kontext_editor(tmp_path)
    noise = torch.randn(1, 16, 8, 12, generator=torch.Generator().manual_seed(1))
    ours = sampled(config, encoders, noise, SamplingConfig(steps=3, guidance=1))
    theirs = pipeline(
        image=picture(), prompt="go red", width=SIZE[0], height=SIZE[1], latents=pack(noise), num_inference_steps=3, guidance_scale=2.5,
        max_sequence_length=12, max_area=SIZE[0] * SIZE[1], _auto_resize=False, output_type="latent",
    ).images  # fmt: skip
    assert torch.allclose(ours, unpack(theirs, 8, 12), atol=1e-4)


def test_qwen_image_edit_samples_what_its_pipeline_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With guidance; the pipeline's encoder is told the image's tokens, which diffusers 0.42.1 forgets."""
    config, pipeline, encoders = qwen_editor(tmp_path)
    monkeypatch.setattr(qwen_pipeline, "CONDITION_IMAGE_SIZE", 96 * 96)
    monkeypatch.setattr(qwen_pipeline, "VAE_IMAGE_SIZE", SIZE[0] * SIZE[1])
    noise = torch.randn(1, 4, 8, 12, generator=torch.Generator().manual_seed(1))
    ours = sampled(config, encoders, noise, SamplingConfig(steps=4, guidance=4))
    theirs = pipeline(
        image=[picture()], prompt="go red", negative_prompt=" ", true_cfg_scale=4.0, width=SIZE[0], height=SIZE[1], latents=pack(noise),
        num_inference_steps=4, output_type="latent",
    ).images  # fmt: skip
    assert torch.allclose(ours, unpack(theirs, 8, 12), atol=1e-4)


def test_qwen_image_edit_knows_where_the_image_is(tmp_path: Path) -> None:
    _, pipeline, encoders = qwen_editor(tmp_path)
    seen: dict[str, Any] = {}
    language_model = pipeline.text_encoder.get_submodule("model.language_model")
    language_model.register_forward_pre_hook(lambda _, arguments, keywords: seen.update(keywords), with_kwargs=True)
    encoders.encode_condition(picture(), "go red")
    assert not torch.equal(seen["position_ids"][-1], seen["position_ids"][-2])


def one_dimensional(pipeline: Any) -> None:
    pipeline.text_encoder.model.compute_3d_position_ids = lambda *given, **keywords: None


def unnormed(encoder: nn.Module, change: Callable[[Any], None]) -> None:
    encoder.register_forward_hook(lambda _, given, output: change(output))


@pytest.mark.parametrize(
    ("editor", "spoil", "sentence"),
    [
        (qwen_editor, one_dimensional, "gives the image of Qwen2.5-VL no rows and columns"),
        (
            qwen_editor,
            lambda pipeline: unnormed(pipeline.text_encoder, lambda out: setattr(out, "hidden_states", out.hidden_states[:-1])),
            "gives the last states of Qwen2.5-VL from before its final norm",
        ),
        (
            qwen_editor,
            lambda pipeline: setattr(pipeline, "prompt_template_encode", f"x{pipeline.prompt_template_encode}"),
            r"follows the \d+ tokens of the prompt that are cut off, expected 'Picture 1: <\|vision_start\|>'",
        ),
        (
            kontext_editor,
            lambda pipeline: unnormed(pipeline.text_encoder_2, lambda out: setattr(out, "last_hidden_state", 2 * out.last_hidden_state)),
            "does not give the states of T5 from behind its final norm",
        ),
        (
            kontext_editor,
            lambda pipeline: unnormed(pipeline.text_encoder, lambda out: setattr(out, "pooler_output", out.last_hidden_state[:, 0])),
            "does not give the states of CLIP from behind its final norm",
        ),
        (kontext_editor, lambda pipeline: setattr(pipeline.tokenizer_2, "eos_token", "a"), "makes 1 of T5's last token, expected"),
    ],
)
def test_versions_that_condition_otherwise_are_refused(tmp_path: Path, editor: Any, spoil: Callable[[Any], None], sentence: str) -> None:
    """Random weights hide it in pixels, so it is looked for when the encoders are loaded."""
    config, pipeline, encoders = editor(tmp_path)
    spoil(pipeline)
    given = (config.text_tokens,) if editor is kontext_editor else (config.vlm_side, config.prefix_tokens)
    with pytest.raises(ValueError, match=sentence):
        type(encoders)(pipeline, *given)


@pytest.mark.parametrize(
    ("editor", "instruction", "sentence"),
    [
        (qwen_editor, "go <|image_pad|> red", r"contains the control token <\|image_pad\|>; remove it"),
        (kontext_editor, "把天空变红", "T5 does not know the characters '把天空变红' of the instruction"),
    ],
)
def test_instructions_that_are_not_read_are_refused(tmp_path: Path, editor: Any, instruction: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        editor(tmp_path)[2].encode_condition(picture(), instruction)


@pytest.mark.parametrize("editor", [kontext_editor, qwen_editor])
def test_images_survive_the_scale_of_the_latents(tmp_path: Path, editor: Callable[[Path], tuple[Any, Any, Any]]) -> None:
    """Decoding undoes the shift and scale of encoding, so it shows what the VAE alone shows."""
    config, pipeline, encoders = editor(tmp_path)
    (moments,) = encoders.encode_images([picture()])
    pixels = torch.from_numpy(np.array(picture())).permute(2, 0, 1)[None] / 127.5 - 1
    pixels = pixels[:, :, None] if editor is qwen_editor else pixels
    with torch.no_grad():
        expected = pipeline.vae.decode(pipeline.vae.encode(pixels).latent_dist.mean).sample.reshape(3, SIZE[1], SIZE[0])
    for shown in (encoders.decode(moments.mean[None]), families.open_decoder(config, CPU)(moments.mean[None])):
        error = np.asarray(shown[0]).astype(float) - ((expected.clamp(-1, 1) + 1) * 127.5).permute(1, 2, 0).numpy()
        assert np.abs(error).mean() < 2  # one of them computes in bf16
    assert not moments.deviation.any()


@pytest.mark.parametrize(
    ("editor", "layout"), [(step1x_editor, "fused"), (step1x_editor, "split"), (kontext_editor, "fused"), (qwen_editor, "split")]
)
def test_one_trainer_trains_every_family(tmp_path: Path, editor: Callable[[Path], tuple[Any, Any, Any]], layout: AdapterLayout) -> None:
    config, _, encoders = editor(tmp_path / "editor")
    size = encoders.working_size(*SIZE, 64)
    images = [picture(seed).resize(size) for seed in range(4)]
    pairs = PairsInMemory([encode_pair(encoders, image, images[0], "go", size) for image in images], _nulls(encoders, images, size))
    metrics: list[dict[str, float]] = []

    def trained() -> nn.Module:
        model = families.open_model(config, CPU)
        train(
            model=model, base="tiny", pairs=pairs, held_out=PairsInMemory([], []), flow=RectifiedFlowConfig(), device=CPU,
            config=LargeTrainingConfig(
                steps=8, batch_size=4, pairs_per_pass=4, adapters=AdapterConfig(rank=4, alpha=4), adapter_layout=layout,
                learning_rate=1e-2, warmup_steps=0, precision="fp32", loader_workers=0, report_every=1, activation_checkpointing="none",
                progress=ProgressConfig(pairs=0, samples=0),
            ),
            checkpoint_dir=tmp_path / "checkpoints", on_metrics=metrics.append, on_samples=lambda step, latents: None,
            sampling=config.sampling,
        )  # fmt: skip
        return model

    model: Any = trained()
    assert len(metrics) == 8 and all(np.isfinite(one["loss"]) for one in metrics)
    before = dict(families.open_model(config, CPU).named_parameters())
    after = {name.replace(".base_layer", ""): weight for name, weight in model.named_parameters()}
    learnt = {name for name in after if "lora_" in name}
    assert all(torch.equal(before[name], after[name]) for name in after.keys() - learnt)
    for name in learnt:
        idle = any(name.startswith(f"{layer}.") for layer in model.idle_layers)
        assert after[name].requires_grad is not idle and ("lora_A" in name or after[name].any().item() is not idle)
    resumed = trained()  # from the last checkpoint: nothing is left to do
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), resumed.parameters(), strict=True))


def _nulls(encoders: Encoders, images: list[Image.Image], size: tuple[int, int]) -> list[Condition]:
    return [encode_null(encoders, image, size) for image in images]


def test_example_input_has_the_shapes_of_encoded_pairs(tmp_path: Path) -> None:
    for number, editor in enumerate((step1x_editor, kontext_editor, qwen_editor)):
        config, _, encoders = editor(tmp_path / str(number))
        example = families.example_input(config, 64, CPU)
        condition = encoders.encode_condition(picture(), "go")
        assert example.latent == tuple(encoders.encode_images([picture().resize((64, 64))])[0].mean.shape)
        assert {name: tensor.shape[-1] for name, tensor in example.condition.items()} == {
            name: one.shape[-1] for name, one in condition.items()
        }


def test_exported_weights_are_read_back(tmp_path: Path) -> None:
    config, _, _ = kontext_editor(tmp_path)
    model = families.open_model(config, CPU)
    with torch.no_grad():
        model.get_parameter("transformer.proj_out.bias").add_(1)
    families.export_weights(config, model, tmp_path / "weights.safetensors")
    other = families.open_model(families.with_weights(config, tmp_path / "weights.safetensors"), CPU)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
    identities = [families.model_identity(one) for one in (config, families.with_weights(config, tmp_path / "weights.safetensors"))]
    assert identities[0] != identities[1] and families.encoders_identity(config) == families.encoders_identity(config)


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config, _, _ = kontext_editor(tmp_path / "kontext")
    for changes, sentence in (({"connector": True}, "Kontext has no connector to train"), ({}, "")):
        training = LargeTrainingConfig(adapters=AdapterConfig(rank=2, alpha=2), **changes)
        with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
            large.check(LargeFinetuneConfig(editor=config, training=training))
    with pytest.raises(ValueError, match=r"scheduler_config\.json is not readable"):
        families.open_model(KontextConfig(directory=str(tmp_path)), CPU)
    with pytest.raises(ValueError, match=r"there is no \S+/model_index\.json, which says the list of a pipeline's parts"):
        families.open_encoders(KontextConfig(directory=str(tmp_path)), CPU)
    other, _, _ = qwen_editor(tmp_path / "qwen")
    weights = tmp_path / "qwen/transformer/diffusion_pytorch_model.safetensors"
    with pytest.raises(ValueError, match=r"tensors differ\); use weights of this model"):
        families.open_model(families.with_weights(config, weights), CPU)
    weights.write_bytes(b"{}")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        families.open_model(other, CPU)
    (tmp_path / "qwen/text_encoder/config.json").unlink()
    with pytest.raises(ValueError, match=r"there is no \S+text_encoder/config\.json"):  # and it is not built with 7 billion parameters
        families.open_encoders(other, CPU)


@pytest.mark.parametrize("editor", [kontext_editor, qwen_editor, step1x_editor])
def test_a_file_of_the_encoders_that_is_missing_or_damaged_is_named(tmp_path: Path, editor: Callable[[Path], tuple[Any, Any, Any]]) -> None:
    """Libraries replace most of them by defaults. Nothing is loaded to find it."""
    config, _, _ = editor(tmp_path / "editor")
    unread = ("chat_template.jinja", "generation_config.json")  # prompts are those of the pipelines, and nothing is generated
    files = [path for path in (tmp_path / "editor").rglob("*/*") if path.parent.name != "transformer" and path.name not in unread]
    assert {"tokenizer_config.json", "tokenizer.json", "config.json", "model.safetensors"} <= {path.name for path in files}
    if editor is not step1x_editor:
        (weights,) = (tmp_path / "editor/text_encoder").glob("*.safetensors")
        index = weights.with_suffix(".safetensors.index.json")
        index.write_text(json.dumps({"weight_map": {"one": weights.name}}))
    families.check_files(config)
    for path in files:
        whole = path.read_bytes()
        for spoilt in (None, b"{}" if path.suffix == ".json" else whole[:-1], whole[: len(whole) // 2]):
            if spoilt is None:
                path.unlink()
            else:
                path.write_bytes(spoilt)
            listed = path.with_suffix(".safetensors.index.json").exists()
            named = rf"{path.name}\b" if spoilt is not None or path.suffix == ".json" or listed else str(path.parent)
            with pytest.raises(ValueError, match=named):
                families.check_files(config)
            path.write_bytes(whole)
