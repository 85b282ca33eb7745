"""What takes the place of parts of transformers' Qwen-VL models: the same functions of the same parameters, cheaper."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLDecoderLayer
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer, Qwen3VLTextModel


class ProductPatchEmbed(nn.Module):
    """The same map as a matrix product: a convolution whose stride is its kernel is one, and slower."""

    proj: nn.Conv3d

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[patch, channel * frame * row * column] -> [patch, hidden]"""
        weight = self.proj.weight  # [hidden, 3, 2, patch, patch]
        return F.linear(hidden_states.to(weight.dtype), weight.flatten(1), self.proj.bias)


class LastLayer(nn.Module):
    """A decoder layer whose MLP sees only the tokens that are read: nothing comes after it that the others could reach."""

    input_layernorm: nn.Module
    self_attn: nn.Module
    post_attention_layernorm: nn.Module
    mlp: nn.Module

    def forward(self, hidden_states: Tensor, *, keep: Tensor, **arguments: Any) -> Tensor:
        """[1, token, hidden] -> [1, kept token, hidden]"""
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **arguments)
        states = (hidden_states + attended).index_select(1, keep)
        return states + self.mlp(self.post_attention_layernorm(states))


class LastLayer2_5(LastLayer, Qwen2_5_VLDecoderLayer):  # ty: ignore[incompatible-method-override]
    """That of the family qwen2_5_vl."""


class LastLayer3(LastLayer, Qwen3VLTextDecoderLayer):  # ty: ignore[incompatible-method-override]
    """That of the family qwen3_vl."""


class TextModel3(Qwen3VLTextModel):
    """The vision features of further layers are added at given tokens; transformers takes a mask, which it reads back from the device."""

    def _deepstack_process(self, hidden_states: Tensor, visual_pos_masks: Tensor, visual_embeds: Tensor) -> Tensor:
        """hidden_states [1, token, hidden]; visual_pos_masks [vision token]: numbers of tokens; visual_embeds [vision token, hidden]"""
        sums = hidden_states.index_select(1, visual_pos_masks) + visual_embeds.to(hidden_states.dtype)
        return hidden_states.index_copy(1, visual_pos_masks, sums)
