"""Step1X-Edit v1.1 and v1.2 by the diffusers fork that has their pipelines."""

from __future__ import annotations

from typing import Any

PACKAGES = ("torch", "transformers", "diffusers")
PIPELINES = {"1.1": "Step1XEditPipeline", "1.2": "Step1XEditPipelineV1P2"}
ONE_PASS = {"1.1": {}, "1.2": {"size_level": 1024, "enable_thinking_mode": False, "enable_reflection_mode": False}}
"""v1.2 by default thinks, and edits up to three times, by sampled text that no seed fixes."""


class Step1XEdit:
    """Edits with the fork's pipeline, with noise from the CPU."""

    def __init__(self, pipeline: Any, settings: dict[str, Any]) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.offloaded = False

    def edit(self, image: Any, instruction: str, seed: int) -> Any:
        """The edited PIL image."""
        import torch

        return self.pipeline(
            image=image,
            prompt=instruction,
            num_inference_steps=self.settings["steps"],
            true_cfg_scale=self.settings["guidance"],
            generator=torch.Generator("cpu").manual_seed(seed),
            **ONE_PASS[self.settings["version"]],
        ).images[0]

    def save_memory(self) -> bool:
        """Keep the encoder, the transformer and the VAE in main memory while they are not needed."""
        if not self.offloaded:
            self.pipeline.enable_model_cpu_offload()
            self.offloaded = True
            return True
        return False


def load(settings: dict[str, Any]) -> Step1XEdit:
    """The pipeline on the GPU."""
    import diffusers
    import torch

    pipeline = getattr(diffusers, PIPELINES[settings["version"]])
    return Step1XEdit(pipeline.from_pretrained(settings["weights"], torch_dtype=torch.bfloat16).to("cuda"), settings)
