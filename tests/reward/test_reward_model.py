"""The reward model: images and prompts as the backbone expects them, scoring, saving, training with exact resume."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import two_processes
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import integrate, special, stats
from tiny_model import BACKBONE
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from reward import (
    EditSample,
    ImageError,
    RatedGroup,
    RewardModel,
    SampleError,
    Score,
    better,
    build_preferences,
    preference,
    pretrain,
    score,
    train,
)
from reward.config import (
    BackboneConfig,
    HeadConfig,
    PresentationConfig,
    RewardModelConfig,
)
from reward.evaluation.evaluate import predict_groups
from reward.inputs.decoding import decode
from reward.inputs.images import fitted_size, patchify, resize
from reward.inputs.tokenizer import REWARD_TOKEN, build_tokenizer, load_tokenizer
from reward.model.backbone import FAMILIES, encode
from reward.model.calibration import fit_calibration
from reward.model.weights import StoredTensor, stored_tensors
from reward.trainer.loop import Metrics
from reward.training.config import LossConfig, PretrainingConfig, RewardConfig, TrainingConfig

torch.set_num_threads(1)

DIMENSIONS = ("instruction_following", "visual_quality")
INSTRUCTIONS = ("Make the red circle blue.", "add a yellow square", "remove the cross at the top")
LAYOUTS = ("clip", "images")
CLIP = FAMILIES["qwen2_5_vl"].statistics


def png(seed: int, size: tuple[int, int] = (20, 16)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def config(layout: str = "clip", merge_size: int = 1, dropout: float = 0.0, area: int = 256) -> RewardModelConfig:
    return RewardModelConfig(
        backbone=BACKBONE.model_copy(update={"merge_size": merge_size}),
        presentation=PresentationConfig.model_validate({"layout": layout, "image_area": area}),
        heads=HeadConfig(hidden=(8,), dropout=dropout),
    )


def make(layout: str = "clip", merge_size: int = 1, dropout: float = 0.0, seed: int = 0) -> RewardModel:
    return RewardModel.from_config(config(layout, merge_size, dropout), INSTRUCTIONS, seed=seed).eval()


def group(number: int, candidates: int = 3) -> RatedGroup:
    """A group whose ratings follow from how bright an edit is and how noisy."""
    generator = np.random.default_rng(number)
    base = generator.integers(60, 120)
    levels = generator.integers(1, 5, (candidates, 2))
    edits = []
    for following, quality in levels:
        noise = generator.normal(0, 12 * (4 - quality) + 0.1, (16, 16, 3))
        pixels = np.clip(base + 30 * following + noise, 0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        edits.append(buffer.getvalue())
    source = io.BytesIO()
    Image.new("RGB", (16, 16), (int(base),) * 3).save(source, "PNG")
    scores = tuple(dict(zip(DIMENSIONS, map(float, row), strict=True)) for row in levels)
    return RatedGroup(
        source_id=f"s{number}",
        source=source.getvalue(),
        instruction=INSTRUCTIONS[number % 3],
        candidate_ids=tuple(f"s{number}-{i}" for i in range(candidates)),
        candidates=tuple(edits),
        scores=scores,
        preferences=tuple(build_preferences(scores, DIMENSIONS)),
    )


def parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


# ------------------------------------------------------------------------------------------------------------------ images


@settings(max_examples=25, deadline=None)
@given(
    width=st.integers(5, 90),
    height=st.integers(5, 90),
    merge_size=st.sampled_from([1, 2]),
    patch_size=st.sampled_from([8, 14]),
    area=st.sampled_from([784, 3000]),
    seed=st.integers(0, 9),
)
def test_patches_equal_those_of_the_stock_processor(
    width: int, height: int, merge_size: int, patch_size: int, area: int, seed: int
) -> None:
    image = decode(png(seed, (width, height)))
    stock = Qwen2VLImageProcessorPil(patch_size=patch_size, merge_size=merge_size, size={"shortest_edge": area, "longest_edge": area})
    expected = stock(images=[image], return_tensors="pt")
    factor = patch_size * merge_size
    frames = resize(image, fitted_size(width, height, factor=factor, area=(area, area)))[None, None]
    found = patchify(frames, patch_size=patch_size, merge_size=merge_size, statistics=CLIP)
    assert expected["image_grid_thw"].tolist() == [[1, frames.shape[2] // patch_size, frames.shape[3] // patch_size]]
    assert (found - expected["pixel_values"]).abs().max() < 1e-6


def test_pixels_equal_those_of_the_reference_implementation(shared_data: Path) -> None:
    for case in ("case_a", "case_b"):
        folder = shared_data / "parity" / case
        arrays, inputs = np.load(folder / "arrays.npz"), json.loads((folder / "inputs.json").read_text())
        vision = json.loads((folder / "model" / "config.json").read_text())["vision_config"]
        patch_size, merge_size = vision["patch_size"], vision["spatial_merge_size"]
        for path in sorted((folder / "images").iterdir()):
            with Image.open(path) as file:
                image = decode(file.convert("RGB"))  # the reference drops transparency, our decoder blends it over white
            size = fitted_size(*image.size, factor=patch_size * merge_size, area=(inputs["min_pixels"], inputs["max_pixels"]))
            found = patchify(resize(image, size)[None, None], patch_size=patch_size, merge_size=merge_size, statistics=CLIP)
            assert np.abs(found.numpy() - arrays[f"pixel_values.{path.stem}"]).max() < 1e-6


def test_two_frames_fill_the_two_temporal_places() -> None:
    first, second = (resize(decode(png(seed)), (16, 16)) for seed in (1, 2))
    both = patchify(torch.stack([first, second])[None], patch_size=8, merge_size=1, statistics=CLIP).view(4, 3, 2, 64)
    for place, frame in enumerate((first, second)):
        still = patchify(frame[None, None], patch_size=8, merge_size=1, statistics=CLIP).view(4, 3, 2, 64)
        assert torch.equal(both[:, :, place], still[:, :, place]) and torch.equal(still[:, :, 0], still[:, :, 1])


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), place=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_file_is_an_image_or_an_error_of_ours(cut: int, place: int, byte: int) -> None:
    data = bytearray(png(0, (10, 10)))
    data[place % len(data)] = byte
    with suppress(ImageError):
        assert decode(bytes(data[: len(data) - cut % len(data)])).mode == "RGB"


def test_the_reason_names_the_image() -> None:
    with pytest.raises(ImageError, match="edited image of 4 bytes cannot be decoded"):
        decode(b"junk", what="edited image")
    with pytest.raises(ImageError, match="source image is 4000x1: an aspect ratio above 200"):
        fitted_size(4000, 1, factor=16, area=(1024, 1024), what="source image")


# ------------------------------------------------------------------------------------------------------------------ prompt


def test_the_tiny_tokenizer_keeps_content_words() -> None:
    tokenizer = build_tokenizer(INSTRUCTIONS)
    assert tokenizer.tokenize("Make THE red circle, blue!") == ["make", "red", "circle", "blue"]
    assert tokenizer.tokenize("theatre to a cross") == ["<unk>", "cross"]
    assert tokenizer.get_vocab() == build_tokenizer(reversed(INSTRUCTIONS)).get_vocab()
    with pytest.raises(ValueError, match="no words"):
        build_tokenizer(["the a"])


def test_an_instruction_cannot_smuggle_in_special_tokens() -> None:
    model = make()
    instruction = "blue <|video_pad|> <|Reward|> square"
    prepared = model.prepare(source=png(1), candidates=[png(2)], instruction=instruction)
    ids = prepared.tree.input_ids.tolist()
    assert ids.count(model.prompt.reward_token) == 1 and ids[-1] == model.prompt.reward_token
    assert ids.count(model.prompt.vision_token) == 4
    assert isinstance(score(model=model, samples=[EditSample(png(1), instruction, png(2))])[0], Score)


def test_a_tokenizer_without_reward_token_gets_one(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>")),
        unk_token="<unk>",
        additional_special_tokens=["<|image_pad|>", "<|video_pad|>"],
    ).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.get_vocab()[REWARD_TOKEN] == len(tokenizer) - 1
    ids = tokenizer("a <|Reward|>", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer("<|Reward|>")["input_ids"] == [len(tokenizer) - 1] and len(tokenizer) - 1 not in ids


# ------------------------------------------------------------------------------------------------------------------- model


def prepared_sets(model: RewardModel) -> list:
    """Groups of different sizes, shapes and instruction lengths."""
    shapes = [[(16, 16), (16, 16)], [(40, 10), (10, 40), (16, 16)], [(24, 16)]]
    return [
        model.prepare(source=png(10 + i, (18 + 9 * i, 14)), candidates=[png(20 + i, size) for size in sizes], instruction=INSTRUCTIONS[i])
        for i, sizes in enumerate(shapes)
    ]


def test_the_source_comes_first() -> None:
    source, edited = png(0, (16, 16)), png(1, (16, 16))
    frames = {"source": resize(decode(source), (16, 16)), "edited": resize(decode(edited), (16, 16))}
    clip = make("clip").prepare(source=source, candidates=[edited], instruction=INSTRUCTIONS[0])
    assert torch.equal(clip.stacks[0][0, 0], frames["source"]) and torch.equal(clip.stacks[0][0, 1], frames["edited"])
    images = make("images").prepare(source=source, candidates=[edited], instruction=INSTRUCTIONS[0])
    shown = [images.stacks[0][slot, 0] for slot in images.tree.items]
    assert torch.equal(shown[0], frames["source"]) and torch.equal(shown[1], frames["edited"])
    wide = make("clip").prepare(source=source, candidates=[png(2, (40, 10))], instruction=INSTRUCTIONS[0])
    assert wide.stacks[0].shape == (1, 2, 16, 16, 3)  # an edit of another shape takes the source's grid


def test_a_source_is_encoded_once_for_its_candidates() -> None:
    model = make("images")
    prepared = model.prepare(source=png(0), candidates=[png(1), png(2), png(3)], instruction=INSTRUCTIONS[0])
    batch = model.collate([prepared])
    assert sum(len(stack) for stack in batch.stacks) == 4 and len(batch.reads) == 3
    together = model(batch).mean
    for number in (1, 2, 3):
        alone = model(model.collate([model.prepare(source=png(0), candidates=[png(number)], instruction=INSTRUCTIONS[0])])).mean
        assert (together[number - 1] - alone[0]).abs().max() < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_parameter_learns(layout: str) -> None:
    model = make(layout)
    output = model(model.collate(prepared_sets(model)))
    (output.mean.sum() + output.sigma.sum()).backward()
    silent = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert not silent
    assert float(output.sigma.detach().min()) >= model.config.heads.sigma_floor


def pretrained_config(folder: Path, area: int, prompt: str = "reference") -> RewardModelConfig:
    return RewardModelConfig(
        backbone=BackboneConfig(pretrained=str(folder / "model")),
        presentation=PresentationConfig.model_validate({"layout": "images", "prompt": prompt, "image_area": area}),
    )


@pytest.mark.parametrize("prompt", ["reference", "rubric_first"])
def test_a_pretrained_directory_is_prompted_with_a_rubric(prompt: str, shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "parity" / "case_a"
    model = RewardModel.from_config(pretrained_config(folder, 12544, prompt), seed=3).eval()
    images = [path.read_bytes() for path in sorted((folder / "images").iterdir())]
    samples = [EditSample(images[4], "Make the red disc blue.", images[i]) for i in (0, 1, 2)]
    scores = score(model=model, samples=samples)
    ids = model.collate([model.prepare(source=images[4], candidates=images[:1], instruction="Make <|Reward|> it.")]).input_ids
    text = model.tokenizer.decode(ids.tolist())
    assert ids.tolist().count(model.prompt.reward_token) == 2 and ids[-1] == model.prompt.reward_token
    assert text.startswith("<|im_start|>") and "Visual quality" in text and "<|im_end|>\n<|im_start|>user" in text
    assert (text.index("Visual quality") < text.index("<|image_pad|>")) == (prompt == "rubric_first")
    model.save(tmp_path)
    assert score(model=RewardModel.load(tmp_path), samples=samples) == scores


# ------------------------------------------------------------------------------------------------------------------ scoring


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_scores_as_its_samples_do_alone(layout: str) -> None:
    model = make(layout)
    samples = [EditSample(png(i, (16 + 8 * (i % 3), 16)), INSTRUCTIONS[i % 3], png(50 + i, (30, 12 + i))) for i in range(7)]
    together = score(model=model, samples=samples, token_budget=40)
    for sample, found in zip(samples, together, strict=True):
        (alone,) = score(model=model, samples=[sample])
        assert isinstance(alone, Score) and isinstance(found, Score)
        assert found.mean == pytest.approx(alone.mean, abs=1e-5) and found.sigma == pytest.approx(alone.sigma, abs=1e-5)
        assert found.overall_mean == pytest.approx(sum(found.mean.values()) / 2, abs=1e-6)
        assert found.overall_sigma == pytest.approx(np.hypot(*found.sigma.values()) / 2, abs=1e-6)
    assert together == score(model=model, samples=samples, token_budget=40)


def test_a_bad_sample_never_costs_its_neighbours() -> None:
    model = make()
    good = EditSample(png(1), INSTRUCTIONS[0], png(2))
    bad = {
        "edited image of 30 bytes": replace(good, edited=good.edited[:30]),
        "source image of 0 bytes": replace(good, source=b""),
        "aspect ratio above 200": replace(good, source=png(3, (1, 4000))),
        "instruction is empty": replace(good, instruction=" \n"),
        "instruction is not valid Unicode": replace(good, instruction="red \ud83d"),
        "more than presentation.max_instruction_tokens": replace(good, instruction="red " * 5000),
    }
    results = score(model=model, samples=[good, *bad.values(), good], token_budget=30)
    (alone,) = score(model=model, samples=[good])
    for number in (0, -1):
        found = results[number]
        assert isinstance(found, Score) and isinstance(alone, Score) and found.mean == pytest.approx(alone.mean, abs=1e-6)
    for reason, result in zip(bad, results[1:-1], strict=True):
        assert isinstance(result, SampleError) and reason in str(result)
    assert score(model=model, samples=[]) == []


def test_preference_between_two_scores() -> None:
    low = Score({"d": 0.0}, {"d": 1.0}, 0.0, 1.0, None, None)
    high = Score({"d": 3.0}, {"d": 1.0}, 3.0, 1.0, None, None)
    assert preference(high, low) == pytest.approx(expected_sigmoid(3.0, np.sqrt(2)), abs=1e-9)
    assert preference(high, low) + preference(low, high) == pytest.approx(1) and preference(low, low) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no tie threshold"):
        better(high, low)
    outcome = better(replace(high, tie_threshold=0.4), replace(low, tie_threshold=0.4))
    assert outcome.a_better == pytest.approx(expected_sigmoid(2.6, np.sqrt(2)), abs=1e-9)
    assert outcome.b_better == pytest.approx(expected_sigmoid(-3.4, np.sqrt(2)), abs=1e-9)
    assert outcome.a_better + outcome.tie + outcome.b_better == pytest.approx(1) and outcome.tie > 0


def expected_sigmoid(mean: float, sigma: float) -> float:
    """E[sigmoid(z)] by adaptive integration."""
    density = stats.norm(mean, sigma).pdf
    return integrate.quad(lambda z: special.expit(z) * density(z), -30, 30)[0]


def test_a_saved_model_scores_the_same_and_is_the_same_bytes(tmp_path: Path) -> None:
    model = make()
    raw = np.arange(4.0)
    model.calibration = fit_calibration(dict.fromkeys(DIMENSIONS, raw), dict.fromkeys(DIMENSIONS, raw + 1))
    model.save(tmp_path / "one", facts={"training data": "none"})
    loaded = RewardModel.load(tmp_path / "one")
    loaded.save(tmp_path / "two", facts={"training data": "none"})
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "calibration.json", "README.md"} <= names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    samples = [EditSample(png(1), INSTRUCTIONS[0], png(2))]
    assert score(model=loaded, samples=samples) == score(model=model, samples=samples)
    (found,) = score(model=loaded, samples=samples)
    assert isinstance(found, Score) and found.likert is not None and set(found.likert) == set(DIMENSIONS)


def test_loading_reads_each_weight_once_into_a_model_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reward.model.model as module

    make().save(tmp_path)
    reads: list[str] = []
    own: list[bool] = []

    def counted(file: Path) -> dict[str, StoredTensor]:
        def reading(name: str, tensor: StoredTensor) -> StoredTensor:
            return replace(tensor, rows=lambda *rows: reads.append(name) or tensor.rows(*rows))

        return {name: reading(name, tensor) for name, tensor in stored_tensors(file).items()}

    def taking(model: RewardModel, *given: Any, **named: Any) -> None:
        own.extend(parameter.is_meta for parameter in model.parameters())
        take_weights(model, *given, **named)

    take_weights = RewardModel.take_weights
    monkeypatch.setattr(module, "stored_tensors", counted)
    monkeypatch.setattr(RewardModel, "take_weights", taking)
    state = torch.get_rng_state()
    loaded = RewardModel.load(tmp_path)
    assert sorted(reads) == sorted(loaded.state_dict()) and own and all(own)
    assert not any(tensor.is_meta for tensor in [*loaded.parameters(), *loaded.buffers()])
    assert all(parameter.requires_grad for parameter in loaded.parameters()) and torch.equal(torch.get_rng_state(), state)


def test_directories_that_hold_no_sound_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no reward model at"):
        RewardModel.load(tmp_path)
    model = make()
    model.save(tmp_path / "nan")
    with torch.no_grad():
        next(model.heads.parameters())[0, 0] = float("nan")
    model.save(tmp_path / "nan")
    with pytest.raises(ValueError, match="contains NaN or infinity in heads"):
        RewardModel.load(tmp_path / "nan")
    for file, content in (
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"null"),
        ("tokenizer_config.json", b"[]"),
    ):
        make().save(tmp_path / "damaged")
        (tmp_path / "damaged" / file).write_bytes(content)
        with pytest.raises(ValueError, match=r"the tokenizer in .*damaged cannot be read \(.*; copy the model again$"):
            RewardModel.load(tmp_path / "damaged")
    (tmp_path / "damaged" / "config.json").write_bytes(b"null")
    with pytest.raises(ValueError, match=r"damaged/config\.json is not of reward model format"):
        RewardModel.load(tmp_path / "damaged")
    make(seed=1).save(tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cut/model.safetensors cannot be read"):
        RewardModel.load(tmp_path / "cut")
    make(seed=1).save(tmp_path / "other")
    settings_file = tmp_path / "other" / "config.json"
    settings_file.write_text(settings_file.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(ValueError, match="not of reward model format 2"):
        RewardModel.load(tmp_path / "other")


# ----------------------------------------------------------------------------------------------------------------- training


class Killed(Exception):
    """What a test raises in the middle of a run."""


def nothing(metrics: Metrics) -> None:
    pass


def kill_at(step: int) -> Callable[[Metrics], None]:
    def on_metrics(metrics: Metrics) -> None:
        if metrics["step"] >= step:
            raise Killed

    return on_metrics


GROUPS = [group(number) for number in range(10)]
HELD_OUT = [group(number) for number in range(100, 104)]
SHORT = TrainingConfig(steps=12, groups_per_batch=4, checkpoint_every=4, log_every=1, validate_every=5, learning_rate=1e-2)


def run(
    model: RewardModel, folder: Path, on_metrics: Callable[[Metrics], None] = nothing, training: TrainingConfig = SHORT
) -> list[Metrics]:
    trained = train(
        model=model, config=training, loss=LossConfig(), groups=GROUPS, validation=HELD_OUT, checkpoint_dir=folder, on_metrics=on_metrics
    )
    assert trained.model is model
    return trained.history


def test_training_fits_ratings_it_can_see(tmp_path: Path) -> None:
    training = SHORT.model_copy(update={"steps": 150, "groups_per_batch": 8, "checkpoint_every": 1000, "learning_rate": 5e-3})
    many, held_out = [group(number, 4) for number in range(60)], [group(number, 4) for number in range(100, 120)]
    arguments = {"loss": LossConfig(), "groups": many, "validation": held_out, "checkpoint_dir": tmp_path, "on_metrics": nothing}
    history = train(model=make(), config=training, **arguments).history
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]
    assert history[-1]["validation/accuracy"] > 0.8
    assert {"loss/visual_quality", "loss/aggregate", "learning_rate", "gradient_norm", "validation/accuracy/visual_quality"} <= history[
        -1
    ].keys()


def test_a_killed_run_ends_with_identical_parameters(tmp_path: Path) -> None:
    """With dropout, so that the randomness of each step must come back too."""
    whole = make(dropout=0.2)
    history = run(whole, tmp_path / "whole")
    for step in (3, 7):  # once before the first checkpoint, once between two
        with pytest.raises(Killed):
            run(make(dropout=0.2), tmp_path / "killed", kill_at(step))
    torch.manual_seed(12345)
    torch.rand(7)
    resumed = make(dropout=0.2, seed=9)  # a resume does not depend on how the new process was seeded
    assert run(resumed, tmp_path / "killed") == history
    assert_identical(parameters(resumed), parameters(whole))
    assert len(list((tmp_path / "killed").iterdir())) == 2


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = make()
    run(whole, tmp_path / "whole")
    with pytest.raises(Killed):
        run(make(), tmp_path / "killed", kill_at(10))
    newest = sorted(path for path in (tmp_path / "killed").iterdir() if path.name.startswith("step-"))[-1]
    largest = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(bytes(data))
    resumed = make()
    with caplog.at_level(logging.WARNING):
        run(resumed, tmp_path / "killed")
    assert "step-00000008" in caplog.text and "damaged" in caplog.text
    assert_identical(parameters(resumed), parameters(whole))


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    run(make(), tmp_path)
    with pytest.raises(ValueError, match="belongs to other settings or data"):
        run(make(), tmp_path, training=SHORT.model_copy(update={"seed": 1}))


def test_training_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    arguments = {"model": make(), "config": SHORT, "loss": LossConfig(), "checkpoint_dir": tmp_path, "on_metrics": nothing}
    with pytest.raises(ValueError, match="no groups to train on"):
        train(groups=[], validation=[], **arguments)
    with pytest.raises(ValueError, match="source s3 is in training and in validation"):
        train(groups=GROUPS, validation=GROUPS[3:4], **arguments)
    with pytest.raises(SampleError, match="group broken: edited image of 4 bytes"):
        train(groups=[replace(GROUPS[0], source_id="broken", candidates=(b"junk", *GROUPS[0].candidates[1:]))], validation=[], **arguments)


def test_activation_checkpointing_and_a_small_cache_change_nothing(tmp_path: Path) -> None:
    plain, thrifty = make(), make()
    run(plain, tmp_path / "plain")
    run(thrifty, tmp_path / "thrifty", training=SHORT.model_copy(update={"activation_checkpointing": True, "cache_mebibytes": 0}))
    for name, tensor in parameters(plain).items():
        assert torch.allclose(tensor, parameters(thrifty)[name], atol=1e-5), name


def test_bf16_keeps_fp32_weights(tmp_path: Path) -> None:
    model = make()
    history = run(model, tmp_path, training=SHORT.model_copy(update={"precision": "bf16", "steps": 3}))
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters()) and np.isfinite(history[-1]["loss"])


def train_together(folder: Path, training: TrainingConfig) -> dict[str, Any]:
    """What one of two processes does."""
    model = RewardModel.from_config(config(), INSTRUCTIONS, seed=torch.distributed.get_rank())  # rank 0's weights count
    history = run(model, folder / "checkpoints", training=training)
    return {"parameters": model.state_dict(), "history": history}


@pytest.mark.xdist_group("two workers")
def test_two_workers_learn_what_one_learns(tmp_path: Path) -> None:
    training = SHORT.model_copy(update={"learning_rate": 1e-3})
    assert two_processes.start(train_together, tmp_path, training)() == [0, 0]
    found = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    assert_identical(found[0]["parameters"], found[1]["parameters"])
    assert found[0]["history"] == found[1]["history"]
    single = make()
    history = run(single, tmp_path / "single", training=training)
    assert [m["loss"] for m in found[0]["history"]] == pytest.approx([m["loss"] for m in history], abs=1e-4)
    for name, tensor in parameters(single).items():
        if not name.endswith("mlp.2.bias"):  # a shift of all scores has no gradient: there AdamW follows rounding errors
            assert torch.allclose(tensor, found[0]["parameters"][name], atol=1e-4), name


EXAMPLES = [EditSample(group(n).source, group(n).instruction, group(n).candidates[0]) for n in range(12)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_captioning_learns_resumes_and_leaves_the_heads(layout: str, tmp_path: Path) -> None:
    captioning = PretrainingConfig(steps=30, batch_size=6, checkpoint_every=10, log_every=5, learning_rate=1e-2)
    whole = make(layout)
    before = parameters(whole.heads)
    arguments = {"config": captioning, "examples": EXAMPLES}
    history = pretrain(model=whole, checkpoint_dir=tmp_path / "whole", on_metrics=nothing, **arguments)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert_identical(parameters(whole.heads), before)
    with pytest.raises(Killed):
        pretrain(model=make(layout), checkpoint_dir=tmp_path / "killed", on_metrics=kill_at(15), **arguments)
    resumed = make(layout)
    assert pretrain(model=resumed, checkpoint_dir=tmp_path / "killed", on_metrics=nothing, **arguments) == history
    assert_identical(parameters(resumed), parameters(whole))
    assert pretrain(model=whole, config=PretrainingConfig(steps=0), examples=[], checkpoint_dir=tmp_path, on_metrics=nothing) == []


def test_captioning_is_the_same_whatever_the_prompt_is_later(tmp_path: Path) -> None:
    captioning = PretrainingConfig(steps=4, batch_size=6, learning_rate=1e-2)
    presentation = PresentationConfig(layout="images", image_area=256)
    later = presentation.model_copy(update={"prompt": "rubric_first"})
    found = []
    for number, shown in enumerate((presentation, later)):
        model = RewardModel.from_config(config("images").model_copy(update={"presentation": later}), INSTRUCTIONS)
        model = model if shown is later else RewardModel(config=config("images"), backbone=model.backbone, tokenizer=model.tokenizer)
        pretrain(model=model, config=captioning, examples=EXAMPLES, checkpoint_dir=tmp_path / str(number), on_metrics=nothing)
        found.append(parameters(model.backbone))
    assert_identical(*found)


def test_captioning_predicts_the_instruction_and_its_end() -> None:
    from reward.training.pretrain import Captioner

    model = make("images")
    prepared = model.prepare(source=png(0), candidates=[png(1)], instruction="add a yellow square")
    summed, words = Captioner(model)(model.collate([prepared]))
    assert words == 4  # add, yellow, square, reward token
    batch = model.collate([prepared])
    ids = batch.input_ids
    every = torch.arange(len(ids))
    states = encode(model.backbone, batch, keep=every, reward_vectors=model.reward_embedding)
    logits = states[-5:-1] @ model.backbone.get_input_embeddings().weight.T
    assert float(summed.detach()) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, ids[-4:], reduction="sum").detach()), abs=1e-4
    )


def test_the_warm_up_is_refused_on_real_weights(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "parity" / "case_a"
    with pytest.raises(ValueError, match=r"set pretraining\.steps to 0"):
        RewardConfig(model=pretrained_config(folder, 12544))
    RewardConfig(model=pretrained_config(folder, 12544), pretraining=PretrainingConfig(steps=0))
    model = RewardModel.from_config(pretrained_config(folder, 12544))
    with pytest.raises(ValueError, match="is pretrained; set"):
        pretrain(model=model, config=PretrainingConfig(), examples=EXAMPLES, checkpoint_dir=tmp_path, on_metrics=nothing)


def test_predictions_do_not_depend_on_the_passes() -> None:
    model = make()
    wide, narrow = (predict_groups(model=model, groups=GROUPS, token_budget=budget) for budget in (4096, 40))
    for a, b in zip(wide, narrow, strict=True):
        assert np.abs(a.mean - b.mean).max() < 1e-5 and a.overall_mean == pytest.approx(a.mean.mean(1), abs=1e-6)


# ------------------------------------------------------------------------------------------------------------ loop and config


@pytest.mark.parametrize(
    ("make_config", "message"),
    [
        (lambda: BackboneConfig(text_hidden=97), "text_hidden 97 is not a multiple of its 4 attention heads"),
        (lambda: BackboneConfig(text_heads=4, text_kv_heads=3), "text_kv_heads 3"),
        (lambda: BackboneConfig(vision_hidden=24), "multiple of 4 in the vision tower"),
        (lambda: TrainingConfig(epochs=2), "exactly one of steps and epochs"),
        (lambda: TrainingConfig(steps=None), "exactly one of steps and epochs"),
        (lambda: PresentationConfig.model_validate({"layuot": "clip"}), "layuot"),
    ],
)
def test_configurations_that_cannot_work(make_config: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config()


def test_epochs_become_steps(tmp_path: Path) -> None:
    history = run(make(), tmp_path, training=SHORT.model_copy(update={"steps": None, "epochs": 1.0}))
    assert history[-1]["step"] == 3  # 10 groups, 4 per batch
