"""Step1X-Edit v1.0's frozen half: prompt, quoting rules, hidden states, VAE."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_step1x import qwen_like_tokenizer, tiny_vlm_config, write_step1x
from transformers import Qwen2_5_VLModel

from finetune import families
from finetune.families import encoders_identity
from finetune.step1x import encoders as step1x_encoders
from finetune.step1x.conditioning import Conditioner
from finetune.step1x.config import Step1XConfig
from finetune.step1x.encoders import Step1XEncoders, vae_path, vlm_folder
from finetune.step1x.prompt import PREFIX, prompt, quoted_parts, token_ids

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Step1XConfig:
    return write_step1x(tmp_path_factory.mktemp("step1x"))


@pytest.fixture(scope="module")
def encoders(config: Step1XConfig) -> Step1XEncoders:
    return Step1XEncoders.load(config, CPU)


def picture(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def tail(instruction: str) -> list[str]:
    """The tokens after the image, as text."""
    tokenizer = qwen_like_tokenizer()
    ids = token_ids(tokenizer, instruction, 3)
    end = ids.index(tokenizer.convert_tokens_to_ids("<|vision_end|>"))
    assert ids[end - 3 : end] == [tokenizer.convert_tokens_to_ids("<|image_pad|>")] * 3
    return [tokenizer.decode([token]) for token in ids[end + 1 :]]


def test_prompt_is_the_released_one() -> None:
    text = prompt("make it red")
    assert text.startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nGiven a user prompt, generate an")
    assert text.endswith("User Prompt:Picture 1: <|vision_start|><|image_pad|><|vision_end|>make it red<|im_end|>\n<|im_start|>assistant\n")
    assert len(PREFIX) == 1058


def test_quoted_characters_are_tokens_of_their_own() -> None:
    parts = list(quoted_parts(prompt('write "Hi" on it')))
    assert parts[0].endswith('<|vision_end|>write "') and parts[1:3] == ["“H”", "“i”"] and parts[3].startswith('" on it<|im_end|>')
    assert tail('write "Hi" on it') == [*'write "Hi" on it', "<|im_end|>", "\n", "<|im_start|>", *"assistant\n"]


def test_curly_quotes_and_apostrophes_are_quotation_marks() -> None:
    assert tail("write “Hi” on it") == tail("write 'Hi' on it") == tail('write "Hi" on it')


def test_an_open_quotation_spells_out_the_end_of_the_prompt() -> None:
    """The apostrophe of a contraction opens a quotation that nothing closes: even the special tokens after it become characters."""
    found = tail("don't move")
    assert found[:5] == [*'don"t'] and "<|im_end|>" not in found and "".join(found[6:]).endswith("<|im_start|>assistant\n")


def test_outer_quotes_that_merge_stay() -> None:
    """Before a space the closing quote is no token of its own, so the opening quote and the merged token both stay."""
    assert tail('"a b"')[:5] == ['"', "a", "“", " ”", "b"]


def test_marks_at_the_start_of_the_prompt_do_not_count() -> None:
    assert next(quoted_parts('"' * 156 + "x")) == '"' * 156 + "x"
    assert list(quoted_parts('"' * 157 + "x")) == ['"' * 157, "“x”"]


def test_special_tokens_in_an_instruction_are_refused(encoders: Step1XEncoders) -> None:
    with pytest.raises(ValueError, match=r"contains <\|image_pad\|>, a special token"):
        encoders.encode_condition(picture(), "put <|image_pad|> there")


def test_condition_is_what_the_language_model_makes_of_the_whole_prompt(encoders: Step1XEncoders) -> None:
    """The prefix but its colon is cut off; the last hidden state is the one after the final norm; "!" is masked."""
    seen, normed = {}, []
    vlm = encoders.conditioner.vlm
    hooks = [
        vlm.language_model.register_forward_pre_hook(lambda _, arguments, keywords: seen.update(keywords), with_kwargs=True),
        vlm.language_model.norm.register_forward_hook(lambda _, arguments, output: normed.append(output)),
    ]
    states = encoders.encode_condition(picture(), "go!")["states"]
    for hook in hooks:
        hook.remove()
    tokenizer = encoders.conditioner.tokenizer
    expected = [":", *"Picture 1: ", "<|vision_start|>", *["<|image_pad|>"] * 6, "<|vision_end|>", *"go!", "<|im_end|>", "\n"]
    assert len(states) == len(expected) + 1 + len("assistant\n")
    mask = seen["attention_mask"][0, encoders.conditioner.config.prefix_tokens :]
    assert (mask == 0).nonzero().flatten().tolist() == [expected.index("!")]
    assert tokenizer.convert_tokens_to_ids("!") == 0
    assert torch.equal(states, normed[0][0, encoders.conditioner.config.prefix_tokens :])


def test_image_positions_have_rows_and_columns(encoders: Step1XEncoders) -> None:
    """96 x 64 pixels are 3 x 2 tokens; transformers gives one-dimensional positions where it is not told which tokens they are."""
    seen = {}
    vlm = encoders.conditioner.vlm
    hook = vlm.language_model.register_forward_pre_hook(lambda _, arguments, keywords: seen.update(keywords), with_kwargs=True)
    encoders.encode_condition(picture(), "go")
    hook.remove()
    start = encoders.conditioner.config.prefix_tokens + 13
    grid = seen["position_ids"][-3:, 0, start : start + 6] - start
    assert grid.tolist() == [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]


def test_missing_positions_are_an_error(monkeypatch: pytest.MonkeyPatch, config: Step1XConfig) -> None:
    tokenizer = qwen_like_tokenizer()
    vlm = Qwen2_5_VLModel(tiny_vlm_config(tokenizer))
    monkeypatch.setattr(type(vlm), "compute_3d_position_ids", lambda *arguments, **keywords: None)
    with pytest.raises(ValueError, match=r"transformers 5\S+ gives the image of Qwen2\.5-VL no rows and columns, .*; install transformers"):
        Conditioner(vlm, tokenizer, config.conditioning)


def test_states_from_before_the_norm_are_an_error(config: Step1XConfig) -> None:
    tokenizer = qwen_like_tokenizer()
    vlm = Qwen2_5_VLModel(tiny_vlm_config(tokenizer))
    before: list[Any] = []
    vlm.language_model.norm.register_forward_pre_hook(lambda _, given: before.append(given[0]))
    vlm.register_forward_hook(lambda _, given, output: setattr(output, "last_hidden_state", before[-1]))
    with pytest.raises(ValueError, match=r"does not give the last states of Qwen2\.5-VL from behind its final norm"):
        Conditioner(vlm, tokenizer, config.conditioning)


def test_a_folder_that_lacks_weights_is_an_error(tmp_path: Path, config: Step1XConfig) -> None:
    """transformers draws random ones and only logs it."""
    folder = shutil.copytree(config.directory, tmp_path / "step1x")
    (file,) = (folder / config.vlm).glob("*.safetensors")
    tensors = load_file(file)
    del tensors[next(name for name in tensors if name.endswith("layers.1.mlp.up_proj.weight"))]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(
        ValueError, match=r"1 matrices, language_model\.layers\.1\.mlp\.up_proj\.weight first, are not those of the files in"
    ):
        Step1XEncoders.load(config.model_copy(update={"directory": str(folder)}), CPU)


def test_another_prefix_length_is_an_error(config: Step1XConfig) -> None:
    tokenizer = qwen_like_tokenizer()
    conditioning = config.conditioning.model_copy(update={"prefix_tokens": config.conditioning.prefix_tokens + 1})
    with pytest.raises(ValueError, match=r"expected ':Picture 1: <\|vision_start\|>'"):
        Conditioner(Qwen2_5_VLModel(tiny_vlm_config(tokenizer)), tokenizer, conditioning)


def test_long_instructions_are_cut_and_said_to_be(encoders: Step1XEncoders) -> None:
    assert encoders.unread(picture(), "longer " * 50).endswith("tokens, and the editor reads 52")
    short = [encoders.unread(picture(), "x" * count) for count in range(1, 40)]
    lengths = [len(encoders.conditioner.encode(picture(), "x" * count)) for count in range(1, 40)]
    assert short[0] == "" and [bool(why) for why in short].index(True) == lengths.index(52) + 1
    assert encoders.encode_condition(picture(), "longer " * 50)["states"].shape == (52, 16)


def test_moments_are_in_the_scale_of_the_denoiser(encoders: Step1XEncoders) -> None:
    image = picture(64, 96)
    (moments,) = encoders.encode_images([image])
    assert moments.mean.shape == moments.deviation.shape == (4, 12, 8)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255 * 2 - 1
    with torch.no_grad():
        posterior = encoders.vae.encode(pixels).latent_dist
        noise = torch.randn(1, 4, 12, 8, generator=torch.Generator().manual_seed(0))
        latent = (posterior.mean + posterior.std * noise - 0.1159) * 0.3611
        decoded = encoders.vae.decode(latent / 0.3611 + 0.1159).sample[0]
    assert torch.allclose(moments.sample(noise[0]), latent[0], atol=1e-5)
    shown = np.asarray(encoders.decode(latent)[0]).astype(float)
    assert np.abs(shown - ((decoded.clamp(-1, 1) + 1) * 127.5).permute(1, 2, 0).numpy()).max() <= 0.5001


@pytest.mark.parametrize(
    ("size", "side", "working"),
    [((1024, 1024), 512, (512, 512)), ((1920, 1080), 512, (672, 384)), ((1080, 1920), 768, (576, 1024)), ((500, 333), 1024, (1248, 832))],
)
def test_working_size(encoders: Step1XEncoders, size: tuple[int, int], side: int, working: tuple[int, int]) -> None:
    assert encoders.working_size(*size, side) == working


def test_identity_changes_with_every_file_and_setting(config: Step1XConfig, tmp_path: Path) -> None:
    first = encoders_identity(config)
    assert encoders_identity(config.model_copy(update={"denoiser": "other"})) == first
    longer = config.conditioning.model_copy(update={"max_tokens": 97})
    assert encoders_identity(config.model_copy(update={"conditioning": longer})) != first
    changed = tmp_path / "vae.safetensors"
    changed.write_bytes(vae_path(config).read_bytes() + b" ")
    assert encoders_identity(config.model_copy(update={"vae": str(changed)})) != first


def test_missing_files_are_named(config: Step1XConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.safetensors is no readable VAE"):
        step1x_encoders.load_vae(config.model_copy(update={"vae": "nothing.safetensors"}))
    with pytest.raises(ValueError, match=r"there is no \S+/nothing/config\.json"):
        Step1XEncoders.load(config.model_copy(update={"vlm": "nothing"}), CPU)
    with pytest.raises(ValueError, match="nothing contains no model"):
        encoders_identity(config.model_copy(update={"vlm": "nothing"}))
    assert vlm_folder(config).is_dir()


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    first = families.file_hash(path)
    monkeypatch.setattr(families.hashlib, "file_digest", None)
    assert families.file_hash(path) == first
    monkeypatch.undo()
    path.write_bytes(b"other")
    assert families.file_hash(path) != first
    path.unlink()
    with pytest.raises(ValueError, match="is not readable"):
        families.file_hash(path)
