"""Which rows of which released tensors are each parameter of `Step1XEdit`.

The released file joins the projections to query, key and value (with the MLP's first one in single blocks), and the last layer's modulation
has shift before scale, where diffusers has scale before shift. Everything else differs in its name only.
Source: modules/model_edit.py and modules/connector_edit.py of stepfun-ai/Step1X-Edit at 570eba6 (documented tensor names).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from finetune.flux_names import DOUBLE_BLOCK, DOUBLE_BLOCK_FUSED, SINGLE_BLOCK, SINGLE_BLOCK_FUSED


@dataclass(frozen=True)
class Piece:
    """Rows of a released tensor, from `first` until before `last`; None: to its end."""

    name: str
    first: int = 0
    last: int | None = None


_FLUX = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    "time_text_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_text_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_text_embed.text_embedder.linear_1": "vector_in.in_layer",
    "time_text_embed.text_embedder.linear_2": "vector_in.out_layer",
    "proj_out": "final_layer.linear",
}
_DOUBLE_NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm",
    "attn.norm_k": "img_attn.norm.key_norm",
    "attn.norm_added_q": "txt_attn.norm.query_norm",
    "attn.norm_added_k": "txt_attn.norm.key_norm",
}
_SINGLE_NORMS = {"attn.norm_q": "norm.query_norm", "attn.norm_k": "norm.key_norm"}
_REFINER = {
    "proj_in": "input_embedder",
    "time_text_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_text_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_text_embed.text_embedder.linear_1": "c_embedder.linear_1",
    "time_text_embed.text_embedder.linear_2": "c_embedder.linear_2",
}
_REFINER_BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attn.to_out.0": "self_attn_proj",
    "ff.net.0.proj": "mlp.fc1",
    "ff.net.2": "mlp.fc2",
    "norm_out.linear": "adaLN_modulation.1",
}
_REFINER_BLOCK_FUSED = {"self_attn_qkv": ("attn.to_q", "attn.to_k", "attn.to_v")}


def pieces(model: nn.Module) -> dict[str, tuple[Piece, ...]]:
    """For each parameter of a `Step1XEdit`, the released rows that it consists of, in its order of rows."""
    rows = {name: len(parameter) for name, parameter in model.named_parameters()}
    return dict(_pieces(rows))


def _pieces(rows: Mapping[str, int]) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    yield "connector.scale_factor", (Piece("connector.scale_factor"),)
    yield from _linear("connector.global_proj_out", "connector.global_proj_out")
    for ours, released in _REFINER.items():
        yield from _linear(f"connector.refiner.{ours}", f"connector.S.{released}")
    for ours in _blocks(rows, "connector.refiner.token_refiner.refiner_blocks"):
        released = f"connector.S.individual_token_refiner.blocks.{ours.rpartition('.')[2]}"
        yield from _block(rows, ours, released, _REFINER_BLOCK, _REFINER_BLOCK_FUSED, {})
    for ours, released in _FLUX.items():
        yield from _linear(f"transformer.{ours}", released)
    for ours in _blocks(rows, "transformer.transformer_blocks"):
        released = f"double_blocks.{ours.rpartition('.')[2]}"
        yield from _block(rows, ours, released, DOUBLE_BLOCK, DOUBLE_BLOCK_FUSED, _DOUBLE_NORMS)
    for ours in _blocks(rows, "transformer.single_transformer_blocks"):
        released = f"single_blocks.{ours.rpartition('.')[2]}"
        yield from _block(rows, ours, released, SINGLE_BLOCK, SINGLE_BLOCK_FUSED, _SINGLE_NORMS)
    for kind in ("weight", "bias"):
        ours, released = f"transformer.norm_out.linear.{kind}", f"final_layer.adaLN_modulation.1.{kind}"
        half = rows[ours] // 2
        yield ours, (Piece(released, half, 2 * half), Piece(released, 0, half))


def _linear(ours: str, released: str) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    for kind in ("weight", "bias"):
        yield f"{ours}.{kind}", (Piece(f"{released}.{kind}"),)


def _blocks(rows: Mapping[str, int], blocks: str) -> list[str]:
    """Names of the blocks of a list, in order."""
    count = 1 + max(int(name.removeprefix(f"{blocks}.").split(".")[0]) for name in rows if name.startswith(f"{blocks}."))
    return [f"{blocks}.{index}" for index in range(count)]


def _block(
    rows: Mapping[str, int],
    block: str,
    released_block: str,
    linear: Mapping[str, str],
    joined: Mapping[str, tuple[str, ...]],
    norms: Mapping[str, str],
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    for ours, released in linear.items():
        yield from _linear(f"{block}.{ours}", f"{released_block}.{released}")
    for ours, released in norms.items():
        yield f"{block}.{ours}.weight", (Piece(f"{released_block}.{released}.scale"),)
    for released, parts in joined.items():
        for kind in ("weight", "bias"):
            first = 0
            for part in parts:
                last = first + rows[f"{block}.{part}.{kind}"]
                yield f"{block}.{part}.{kind}", (Piece(f"{released_block}.{released}.{kind}", first, last),)
                first = last
