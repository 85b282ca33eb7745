"""What the encoder Qwen2.5-VL must be given, and give, for the editors that were trained with it.

Its tokens have three positions each: time, row and column. Since release 5.3 transformers makes those of an image only from
``mm_token_type_ids``. diffusers 0.42.1 leaves them out in Qwen-Image-Edit and LongCat-Image-Edit (diffusers issue 14194), and transformers
then falls back to positions in the text, without an error. The editors read the states behind the encoder's final norm.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from finetune.tested_versions import refusal


def supply(encoder: nn.Module) -> None:
    """Give the encoder the kinds of its tokens at each call with an image, and check what it makes of them.

    From then on a call raises ``ValueError`` where the image has no rows and columns, or where the states are not those behind the norm.
    """
    takes_kinds = "mm_token_type_ids" in inspect.signature(type(encoder).forward).parameters
    language_model = encoder.get_submodule("model.language_model")
    image_token: int = encoder.config.image_token_id  # ty: ignore
    normed: list[torch.Tensor] = []

    def give_kinds(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if takes_kinds and kwargs.get("pixel_values") is not None and kwargs.get("mm_token_type_ids") is None:
            kwargs["mm_token_type_ids"] = (kwargs["input_ids"] == image_token).int()
        return args, kwargs

    def check_positions(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positions = kwargs.get("position_ids")  # [3 or 4, batch, tokens], rows and columns last
        if positions is None or positions.ndim != 3 or torch.equal(positions[-1], positions[-2]):
            raise ValueError(refusal("gives the image of Qwen2.5-VL no rows and columns"))

    def keep_normed(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        normed[:] = [output.last_hidden_state]

    def check_norm(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        expected = normed.pop()
        if not torch.equal(output.hidden_states[-1].to(expected.device), expected):
            raise ValueError(refusal("gives the last states of Qwen2.5-VL from before its final norm"))

    encoder.register_forward_pre_hook(give_kinds, with_kwargs=True)
    language_model.register_forward_pre_hook(check_positions, with_kwargs=True)
    language_model.register_forward_hook(keep_normed)
    encoder.register_forward_hook(check_norm)
