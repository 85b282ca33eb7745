"""Linear layers of FLUX's blocks: names in diffusers' transformer, and in files of FLUX's own layout, which fuse some of them."""

from __future__ import annotations

DOUBLE_BLOCK = {
    "norm1.linear": "img_mod.lin",
    "norm1_context.linear": "txt_mod.lin",
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "ff.net.0.proj": "img_mlp.0",
    "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0",
    "ff_context.net.2": "txt_mlp.2",
}
DOUBLE_BLOCK_FUSED = {
    "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
}
SINGLE_BLOCK = {"norm.linear": "modulation.lin", "proj_out": "linear2"}
SINGLE_BLOCK_FUSED = {"linear1": ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp")}
FLUX_FUSED = (*DOUBLE_BLOCK_FUSED.values(), *SINGLE_BLOCK_FUSED.values())
