"""Ovis-U1-3B: modelling code from its weights' repository, the steps of an edit from a checkout of its authors' scripts."""

from __future__ import annotations

from typing import Any

PACKAGES = ("torch", "transformers", "diffusers", "flash-attn")


class OvisU1:
    """Edits with ``pipe_img_edit`` of the authors' ``test_img_edit.py``."""

    def __init__(self, model: Any, settings: dict[str, Any]) -> None:
        self.model = model
        self.settings = settings

    def edit(self, image: Any, instruction: str, seed: int) -> Any:
        """The edited PIL image."""
        from test_img_edit import pipe_img_edit

        settings = self.settings
        return pipe_img_edit(
            self.model, image, instruction, settings["steps"], settings["text_guidance"], settings["image_guidance"], seed
        )[0]


def load(settings: dict[str, Any]) -> OvisU1:
    """The model on the GPU."""
    import torch
    from transformers import AutoModelForCausalLM

    model, found = AutoModelForCausalLM.from_pretrained(
        settings["weights"], torch_dtype=torch.bfloat16, trust_remote_code=True, output_loading_info=True
    )
    if found["missing_keys"]:
        raise ValueError(f"weights without {len(found['missing_keys'])} tensors, such as {found['missing_keys'][0]}: they would be random")
    return OvisU1(model.eval().to("cuda"), settings)
