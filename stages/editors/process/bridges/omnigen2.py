"""OmniGen2 by the package of its authors, of which a checkout is on the import path."""

from __future__ import annotations

from typing import Any

PACKAGES = ("torch", "transformers", "diffusers")


class OmniGen2:
    """Edits as ``inference.py`` of the authors' repository does, with noise from the CPU."""

    def __init__(self, pipeline: Any, settings: dict[str, Any]) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.offloaded = False

    def edit(self, image: Any, instruction: str, seed: int) -> Any:
        """The edited PIL image."""
        import torch

        return self.pipeline(
            prompt=instruction,
            negative_prompt=self.settings["negative_prompt"],
            input_images=[image],
            width=image.width,
            height=image.height,
            num_inference_steps=self.settings["steps"],
            text_guidance_scale=self.settings["text_guidance"],
            image_guidance_scale=self.settings["image_guidance"],
            max_sequence_length=1024,
            generator=torch.Generator("cpu").manual_seed(seed),
            output_type="pil",
        ).images[0]

    def save_memory(self) -> bool:
        """Keep the encoder, the transformer and the VAE in main memory while they are not needed."""
        if not self.offloaded:
            self.pipeline.enable_model_cpu_offload()
            self.offloaded = True
            return True
        return False


def load(settings: dict[str, Any]) -> OmniGen2:
    """The pipeline on the GPU, or on the CPU where there is none."""
    import torch
    from omnigen2.models.transformers.transformer_omnigen2 import OmniGen2Transformer2DModel
    from omnigen2.pipelines.omnigen2.pipeline_omnigen2 import OmniGen2Pipeline

    weights = settings["weights"]
    transformer = OmniGen2Transformer2DModel.from_pretrained(weights, subfolder="transformer", torch_dtype=torch.bfloat16)
    pipeline = OmniGen2Pipeline.from_pretrained(weights, transformer=transformer, torch_dtype=torch.bfloat16, trust_remote_code=True)
    return OmniGen2(pipeline.to("cuda" if torch.cuda.is_available() else "cpu"), settings)
