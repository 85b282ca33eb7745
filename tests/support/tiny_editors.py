"""Tiny random weights of every editor that runs in process, saved as directories laid out like those on the Hub.

The VAEs keep the real scale of eight, the encoders the real chat templates, so that the pipelines of diffusers run as they are. Tokens are
single bytes: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    FluxKontextPipeline,
    FluxTransformer2DModel,
    LongCatImageEditPipeline,
    LongCatImageTransformer2DModel,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImageTransformer2DModel,
)
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.processing_utils import ProcessorMixin

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
BYTES = sorted(ByteLevel.alphabet())
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ImageOnlyProcessor(Qwen2VLProcessor):
    """Qwen2VLProcessor without its video part, which needs torchvision."""

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = (tokenizer.convert_tokens_to_ids(t) for t in (self.image_token, self.video_token))
        self.image_ids, self.video_ids, self.audio_ids = [self.image_token_id], [self.video_token_id], []
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    @classmethod
    def from_pretrained(cls, folder, **_) -> ImageOnlyProcessor:
        return cls(Qwen2VLImageProcessorPil.from_pretrained(folder), Qwen2Tokenizer.from_pretrained(folder))

    def save_pretrained(self, folder, **_) -> None:
        self.image_processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _qwen_tokenizer() -> Qwen2Tokenizer:
    tokenizer = Qwen2Tokenizer(vocab={token: i for i, token in enumerate([*BYTES, "<|endoftext|>"])}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    tokenizer.chat_template = CHAT
    return tokenizer


def _scheduler() -> FlowMatchEulerDiscreteScheduler:
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)


def _vae() -> AutoencoderKL:
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(4, 4, 4, 4),
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=2,
        scaling_factor=0.36,
        shift_factor=0.12,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def _qwen_vl(tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLForConditionalGeneration:
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 16,
            "fullatt_block_indexes": [1],
        },
        **{f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{name}_pad|>") for name in ("image", "video")},
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()


def _processor(tokenizer: Qwen2Tokenizer) -> ImageOnlyProcessor:
    return ImageOnlyProcessor(Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=28 * 28 * 1280), tokenizer)


def kontext() -> FluxKontextPipeline:
    clip_tokens = [*BYTES, *(f"{byte}</w>" for byte in BYTES), "<|startoftext|>", "<|endoftext|>"]
    clip_tokenizer = CLIPTokenizer(vocab={token: i for i, token in enumerate(clip_tokens)}, merges=[], model_max_length=77)
    t5_pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -3.0) for piece in ["▁", *map(chr, range(33, 127))])]
    return FluxKontextPipeline(
        scheduler=_scheduler(),
        vae=_vae(),
        text_encoder=CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(clip_tokens),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                projection_dim=16,
                bos_token_id=len(clip_tokens) - 2,
                eos_token_id=len(clip_tokens) - 1,
            )
        ).eval(),
        tokenizer=clip_tokenizer,
        text_encoder_2=T5EncoderModel(T5Config(vocab_size=len(t5_pieces), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)).eval(),
        tokenizer_2=T5Tokenizer(vocab=t5_pieces, extra_ids=0),
        transformer=FluxTransformer2DModel(
            in_channels=64,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            guidance_embeds=True,
            axes_dims_rope=(4, 4, 8),
        ).eval(),
    )


def _qwen(pipeline: type, zero_cond_t: bool) -> QwenImageEditPipeline | QwenImageEditPlusPipeline:
    tokenizer = _qwen_tokenizer()
    return pipeline(
        scheduler=_scheduler(),
        vae=AutoencoderKLQwenImage(
            base_dim=8,
            z_dim=4,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            latents_mean=[0.1, -0.2, 0.3, 0.0],
            latents_std=[1.1, 0.9, 1.2, 1.0],
        ).eval(),
        text_encoder=_qwen_vl(tokenizer),
        tokenizer=tokenizer,
        processor=_processor(tokenizer),
        transformer=QwenImageTransformer2DModel(
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=3,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
            zero_cond_t=zero_cond_t,
        ).eval(),
    )


def qwen() -> QwenImageEditPipeline:
    return _qwen(QwenImageEditPipeline, False)


def qwen_plus() -> QwenImageEditPlusPipeline:
    return _qwen(QwenImageEditPlusPipeline, False)


def qwen_2511() -> QwenImageEditPlusPipeline:
    return _qwen(QwenImageEditPlusPipeline, True)


def _klein(is_distilled: bool) -> Flux2KleinPipeline:
    tokenizer = _qwen_tokenizer()
    return Flux2KleinPipeline(
        scheduler=_scheduler(),
        vae=AutoencoderKLFlux2(block_out_channels=(4, 4, 4, 4), layers_per_block=1, latent_channels=4, norm_num_groups=2).eval(),
        text_encoder=Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=8,
                intermediate_size=16,
                num_hidden_layers=28,
                num_attention_heads=1,
                num_key_value_heads=1,
                head_dim=8,
            )
        ).eval(),
        tokenizer=tokenizer,
        transformer=Flux2Transformer2DModel(
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=24,
            axes_dims_rope=(4, 4, 4, 4),
            guidance_embeds=False,
        ).eval(),
        is_distilled=is_distilled,
    )


def klein_base() -> Flux2KleinPipeline:
    return _klein(False)


def klein() -> Flux2KleinPipeline:
    return _klein(True)


def longcat() -> LongCatImageEditPipeline:
    tokenizer = _qwen_tokenizer()
    return LongCatImageEditPipeline(
        scheduler=_scheduler(),
        vae=_vae(),
        text_encoder=_qwen_vl(tokenizer),
        tokenizer=tokenizer,
        text_processor=_processor(tokenizer),
        transformer=LongCatImageTransformer2DModel(
            in_channels=64,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            axes_dims_rope=[4, 4, 8],
        ).eval(),
    )


BUILDERS: dict[str, Callable] = {
    "flux-kontext": kontext,
    "qwen-image-edit": qwen,
    "qwen-image-edit-2509": qwen_plus,
    "qwen-image-edit-2511": qwen_2511,
    "flux2-klein-4b-base": klein_base,
    "flux2-klein-4b": klein,
    "longcat-image-edit": longcat,
    "firered-image-edit": qwen_plus,
}


def save(name: str, folder: Path) -> Path:
    """The tiny weights of that editor, always the same, as a directory."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BUILDERS[name]().save_pretrained(folder)
    return folder
