"""BAGEL-7B-MoT by the code of its authors, of which a checkout is on the import path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "accelerate", "flash-attn")


class VaeOnGpu:
    """The VAE in float32 on the GPU, for a model that gives it tensors of main memory: the authors' demonstration leaves its VAE there."""

    def __init__(self, vae: Any) -> None:
        self.vae = vae.to("cuda:0").eval()

    def encode(self, images: Any) -> Any:
        """Latents of images."""
        return self._run(self.vae.encode, images)

    def decode(self, latents: Any) -> Any:
        """Images of latents."""
        return self._run(self.vae.decode, latents)

    def _run(self, function: Any, given: Any) -> Any:
        import torch

        with torch.autocast("cuda", enabled=False):
            return function(given.to("cuda:0")).cpu()


class Bagel:
    """Edits with the authors' inferencer, without its reasoning in words."""

    def __init__(self, inferencer: Any, settings: dict[str, Any]) -> None:
        self.inferencer = inferencer
        self.options = {
            "num_timesteps": settings["steps"],
            "timestep_shift": settings["timestep_shift"],
            "cfg_text_scale": settings["cfg_text_scale"],
            "cfg_img_scale": settings["cfg_img_scale"],
            "cfg_interval": [settings["cfg_interval_start"], 1.0],
            "cfg_renorm_min": settings["cfg_renorm_min"],
            "cfg_renorm_type": settings["cfg_renorm_type"],
        }

    def edit(self, image: Any, instruction: str, seed: int) -> Any:
        """The edited PIL image. All noise is from the global generators, which are seeded before."""
        return self.inferencer(image=image, text=instruction, think=False, **self.options)["image"]


def load(settings: dict[str, Any]) -> Bagel:
    """The model on one GPU, put together as the authors' demonstration does."""
    import torch
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from data.data_utils import add_special_tokens
    from data.transforms import ImageTransform
    from inferencer import InterleaveInferencer
    from modeling import bagel
    from modeling.autoencoder import load_ae
    from modeling.qwen2 import Qwen2Tokenizer

    weights = Path(settings["weights"])
    language = bagel.Qwen2Config.from_json_file(str(weights / "llm_config.json"))
    language.qk_norm, language.tie_word_embeddings, language.layer_module = True, False, "Qwen2MoTDecoderLayer"
    vision = bagel.SiglipVisionConfig.from_json_file(str(weights / "vit_config.json"))
    vision.rope = False
    vision.num_hidden_layers -= 1  # the last layer is not used
    vae, vae_config = load_ae(local_path=str(weights / "ae.safetensors"))
    config = bagel.BagelConfig(
        visual_gen=True,
        visual_und=True,
        llm_config=language,
        vit_config=vision,
        vae_config=vae_config,
        vit_max_num_patch_per_side=70,
        connector_act="gelu_pytorch_tanh",
        latent_patch_size=2,
        max_latent_size=64,
    )
    with init_empty_weights():
        model = bagel.Bagel(bagel.Qwen2ForCausalLM(language), bagel.SiglipVisionModel(vision), config)
        model.vit_model.vision_model.embeddings.convert_conv2d_to_linear(vision, meta=True)
    checkpoint = str(weights / "ema.safetensors")
    model = load_checkpoint_and_dispatch(model, checkpoint, device_map={"": "cuda:0"}, dtype=torch.bfloat16, force_hooks=True).eval()
    tokenizer, token_ids, _ = add_special_tokens(Qwen2Tokenizer.from_pretrained(str(weights)))
    sizes = ImageTransform(1024, 512, 16), ImageTransform(980, 224, 14)  # of the VAE and of the vision tower
    return Bagel(InterleaveInferencer(model, VaeOnGpu(vae), tokenizer, *sizes, token_ids), settings)
