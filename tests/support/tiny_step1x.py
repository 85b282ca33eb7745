"""A folder as Step1X-Edit v1.0 is released, of a tiny size, with random weights and a byte-level tokenizer."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from step1x_computation import released_tensors
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from finetune.config import SamplingConfig
from finetune.step1x.config import VLM_PATCH_AREA, ConditioningConfig, Step1XConfig, Step1XSizes
from finetune.step1x.encoders import new_vae, vae_path, vlm_folder
from finetune.step1x.loading import denoiser_path
from finetune.step1x.prompt import prefix_length

SIZES = Step1XSizes(
    double_blocks=2,
    single_blocks=2,
    heads=2,
    rope_axes=(4, 6, 6),
    connector_blocks=2,
    connector_heads=2,
    connector_head_dim=8,
    vlm_width=16,
    pooled_width=8,
    latent_channels=4,
    vae_channels=(4, 4, 4, 4),
    vae_layers=1,
    vae_groups=2,
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def qwen_like_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens, curly quotes as one token each, and Qwen's special tokens; a closing quote merges with a space before it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    alphabet.insert(0, alphabet.pop(alphabet.index("!")))  # token 0, as in Qwen's vocabulary
    spelled = {character: _spelled(character) for character in "“” "}
    merges = [(spelled["“"][0], spelled["“"][1])]
    merges += [("".join(merges[0]), spelled["“"][2]), ("".join(merges[0]), spelled["”"][2])]
    merges += [(spelled[" "], "".join(merges[2]))]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIAL[0], extra_special_tokens=list(SPECIAL[1:]))


def _spelled(text: str) -> str:
    """A text in the letters that stand for its bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]


def tiny_vlm_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    """Sizes of a tiny Qwen2.5-VL for this tokenizer."""
    special = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start", "vision_end")}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": SIZES.vlm_width,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
    }
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 16,
        "out_hidden_size": SIZES.vlm_width,
        "fullatt_block_indexes": [1],
        "window_size": 56,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=special["image_pad"],
        video_token_id=special["video_pad"],
        vision_start_token_id=special["vision_start"],
        vision_end_token_id=special["vision_end"],
    )


def write_step1x(folder: Path) -> Step1XConfig:
    """Write the released layout into an empty folder; returns its configuration."""
    tokenizer = qwen_like_tokenizer()
    conditioning = ConditioningConfig(
        prefix_tokens=prefix_length(tokenizer) - 1, max_tokens=52, min_pixels=4 * VLM_PATCH_AREA, max_pixels=9 * VLM_PATCH_AREA
    )
    sampling = SamplingConfig(steps=4, side=64)
    config = Step1XConfig(directory=str(folder), sizes=SIZES, conditioning=conditioning, sampling=sampling)
    save_file(released_tensors(SIZES), denoiser_path(config), metadata={"format": "pt"})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2_5_VLForConditionalGeneration(tiny_vlm_config(tokenizer)).save_pretrained(vlm_folder(config))
        vae = new_vae(SIZES)
    with torch.no_grad():  # as trained ones: latents of about unit scale, posteriors that are narrow beside it
        vae.encoder.conv_out.weight *= torch.tensor([20.0] * 4 + [0.0] * 4)[:, None, None, None]
        vae.encoder.conv_out.bias.copy_(torch.tensor([0.0] * 4 + [-9.0] * 4))
    save_file(released_vae_tensors(vae.state_dict()), vae_path(config))
    tokenizer.save_pretrained(vlm_folder(config))
    return config


def released_vae_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A VAE's tensors under the names and shapes of the released file."""
    levels = len(SIZES.vae_channels)
    released = {}
    for name, tensor in tensors.items():
        name = re.sub(r"down_blocks\.(\d)\.resnets", r"down.\1.block", name)
        name = re.sub(r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample", name)
        name = re.sub(r"up_blocks\.(\d)\.resnets", lambda found: f"up.{levels - 1 - int(found[1])}.block", name)
        name = re.sub(r"up_blocks\.(\d)\.upsamplers\.0", lambda found: f"up.{levels - 1 - int(found[1])}.upsample", name)
        name = re.sub(r"mid_block\.resnets\.(\d)", lambda found: f"mid.block_{1 + int(found[1])}", name)
        name = (
            name.replace("mid_block.attentions.0", "mid.attn_1")
            .replace("conv_shortcut", "nin_shortcut")
            .replace("conv_norm_out", "norm_out")
        )
        for ours, theirs in (("group_norm", "norm"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "proj_out")):
            name = name.replace(f"attn_1.{ours}.", f"attn_1.{theirs}.")
        is_matrix = "attn_1" in name and tensor.ndim == 2
        released[name] = (tensor[:, :, None, None] if is_matrix else tensor).contiguous()
    return released
