"""What Step1X-Edit v1.0 computes, written out plainly over tensors with the released names: an independent check of the library parts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from finetune.step1x.config import Step1XSizes

Weights = Mapping[str, Tensor]


def released_tensors(sizes: Step1XSizes, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors with the names and shapes of the released file."""
    hidden, head = sizes.heads * sum(sizes.rope_axes), sum(sizes.rope_axes)
    connector = sizes.connector_heads * sizes.connector_head_dim
    channels = 4 * sizes.latent_channels
    linears = {
        "img_in": (hidden, channels),
        "txt_in": (hidden, connector),
        "time_in.in_layer": (hidden, 256),
        "time_in.out_layer": (hidden, hidden),
        "vector_in.in_layer": (hidden, sizes.pooled_width),
        "vector_in.out_layer": (hidden, hidden),
        "final_layer.linear": (channels, hidden),
        "final_layer.adaLN_modulation.1": (2 * hidden, hidden),
        "connector.global_proj_out": (sizes.pooled_width, sizes.vlm_width),
        "connector.S.input_embedder": (connector, sizes.vlm_width),
        "connector.S.t_embedder.mlp.0": (connector, 256),
        "connector.S.t_embedder.mlp.2": (connector, connector),
        "connector.S.c_embedder.linear_1": (connector, sizes.vlm_width),
        "connector.S.c_embedder.linear_2": (connector, connector),
    }
    vectors = {"connector.scale_factor": 1}
    for index in range(sizes.double_blocks):
        for stream in ("img", "txt"):
            at = f"double_blocks.{index}.{stream}"
            linears |= {
                f"{at}_mod.lin": (6 * hidden, hidden),
                f"{at}_attn.qkv": (3 * hidden, hidden),
                f"{at}_attn.proj": (hidden, hidden),
                f"{at}_mlp.0": (4 * hidden, hidden),
                f"{at}_mlp.2": (hidden, 4 * hidden),
            }
            vectors |= {f"{at}_attn.norm.query_norm.scale": head, f"{at}_attn.norm.key_norm.scale": head}
    for index in range(sizes.single_blocks):
        at = f"single_blocks.{index}"
        linears |= {
            f"{at}.linear1": (7 * hidden, hidden),
            f"{at}.linear2": (hidden, 5 * hidden),
            f"{at}.modulation.lin": (3 * hidden, hidden),
        }
        vectors |= {f"{at}.norm.query_norm.scale": head, f"{at}.norm.key_norm.scale": head}
    for index in range(sizes.connector_blocks):
        at = f"connector.S.individual_token_refiner.blocks.{index}"
        linears |= {
            f"{at}.self_attn_qkv": (3 * connector, connector),
            f"{at}.self_attn_proj": (connector, connector),
            f"{at}.mlp.fc1": (4 * connector, connector),
            f"{at}.mlp.fc2": (connector, 4 * connector),
            f"{at}.adaLN_modulation.1": (2 * connector, connector),
        }
        vectors |= {f"{at}.{norm}.{kind}": connector for norm in ("norm1", "norm2") for kind in ("weight", "bias")}
    generator = torch.Generator().manual_seed(seed)
    tensors = {f"{name}.weight": torch.randn(shape, generator=generator) / math.sqrt(shape[1]) for name, shape in linears.items()}
    tensors |= {f"{name}.bias": 0.1 * torch.randn(shape[0], generator=generator) for name, shape in linears.items()}
    return tensors | {name: 1 + 0.1 * torch.randn(size, generator=generator) for name, size in vectors.items()}


def velocity(w: Weights, sizes: Step1XSizes, noisy: Tensor, reference: Tensor, time: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    """Velocity [n, channels, rows, columns] of padded states [n, length, width] with their mask [n, length]."""
    text, pooled = connector(w, sizes, states, time, mask)
    return denoiser(w, sizes, noisy, reference, time, text, pooled)


def connector(w: Weights, sizes: Step1XSizes, states: Tensor, time: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Text tokens and pooled condition."""
    at = "connector.S"
    mean = torch.stack([row[present].mean(0) for row, present in zip(states, mask, strict=True)])
    pooled = _linear(w, "connector.global_proj_out", mean * (1 + w["connector.scale_factor"]))
    timed = _linear(w, f"{at}.t_embedder.mlp.2", F.silu(_linear(w, f"{at}.t_embedder.mlp.0", _sinusoid(1000 * time))))
    context = timed + _linear(w, f"{at}.c_embedder.linear_2", F.silu(_linear(w, f"{at}.c_embedder.linear_1", mean)))
    allowed = (mask[:, :, None] & mask[:, None, :])[:, None]
    allowed = allowed | (torch.arange(mask.shape[1]) == 0)  # every token may see the first one
    x = _linear(w, f"{at}.input_embedder", states)
    for index in range(sizes.connector_blocks):
        block = f"{at}.individual_token_refiner.blocks.{index}"
        gate_attention, gate_mlp = _linear(w, f"{block}.adaLN_modulation.1", F.silu(context))[:, None].chunk(2, -1)
        q, k, v = _heads(_linear(w, f"{block}.self_attn_qkv", _norm(w, f"{block}.norm1", x)), sizes.connector_heads)
        x = x + gate_attention * _linear(w, f"{block}.self_attn_proj", _attend(q, k, v, allowed))
        x = x + gate_mlp * _linear(w, f"{block}.mlp.fc2", F.silu(_linear(w, f"{block}.mlp.fc1", _norm(w, f"{block}.norm2", x))))
    return x, pooled


def denoiser(w: Weights, sizes: Step1XSizes, noisy: Tensor, reference: Tensor, time: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
    """Velocity [n, channels, rows, columns]."""
    n, channels, rows, columns = noisy.shape
    image = _linear(w, "img_in", torch.cat([_patches(noisy), _patches(reference)], 1))
    text = _linear(w, "txt_in", text)
    vector = _linear(w, "time_in.out_layer", F.silu(_linear(w, "time_in.in_layer", _sinusoid(1000 * time))))
    vector = vector + _linear(w, "vector_in.out_layer", F.silu(_linear(w, "vector_in.in_layer", pooled)))
    positions = torch.cat([torch.zeros(text.shape[1], 3), _positions(noisy), _positions(reference)])
    for index in range(sizes.double_blocks):
        image, text = _double_block(w, f"double_blocks.{index}", sizes, image, text, vector, positions)
    joined = torch.cat([text, image], 1)
    for index in range(sizes.single_blocks):
        joined = _single_block(w, f"single_blocks.{index}", sizes, joined, vector, positions)
    shift, scale = _linear(w, "final_layer.adaLN_modulation.1", F.silu(vector))[:, None].chunk(2, -1)
    image = joined[:, text.shape[1] :][:, : rows * columns // 4]
    tokens = _linear(w, "final_layer.linear", (1 + scale) * _plain_norm(image) + shift)
    out = torch.empty(n, channels, rows, columns, dtype=tokens.dtype)
    for token in range(tokens.shape[1]):
        row, column = divmod(token, columns // 2)
        out[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = tokens[:, token].view(n, channels, 2, 2)
    return out


def _double_block(w: Weights, at: str, sizes: Step1XSizes, image: Tensor, text: Tensor, vector: Tensor, positions: Tensor):
    streams = {"txt": text, "img": image}
    modulations = {name: _linear(w, f"{at}.{name}_mod.lin", F.silu(vector))[:, None].chunk(6, -1) for name in streams}
    queries, keys, values = [], [], []
    for name, x in streams.items():
        shift, scale, *_ = modulations[name]
        q, k, v = _heads(_linear(w, f"{at}.{name}_attn.qkv", (1 + scale) * _plain_norm(x) + shift), sizes.heads)
        queries.append(_rms(q, w[f"{at}.{name}_attn.norm.query_norm.scale"]))
        keys.append(_rms(k, w[f"{at}.{name}_attn.norm.key_norm.scale"]))
        values.append(v)
    q, k = (_rotate(torch.cat(parts, 2), positions, sizes.rope_axes) for parts in (queries, keys))
    attended = dict(zip(streams, _attend(q, k, torch.cat(values, 2)).split([text.shape[1], image.shape[1]], 1), strict=True))
    for name, x in streams.items():
        _, _, gate, mlp_shift, mlp_scale, mlp_gate = modulations[name]
        x = x + gate * _linear(w, f"{at}.{name}_attn.proj", attended[name])
        hidden = _linear(w, f"{at}.{name}_mlp.0", (1 + mlp_scale) * _plain_norm(x) + mlp_shift)
        streams[name] = x + mlp_gate * _linear(w, f"{at}.{name}_mlp.2", F.gelu(hidden, approximate="tanh"))
    return streams["img"], streams["txt"]


def _single_block(w: Weights, at: str, sizes: Step1XSizes, x: Tensor, vector: Tensor, positions: Tensor) -> Tensor:
    shift, scale, gate = _linear(w, f"{at}.modulation.lin", F.silu(vector))[:, None].chunk(3, -1)
    width = x.shape[-1]
    joined, hidden = _linear(w, f"{at}.linear1", (1 + scale) * _plain_norm(x) + shift).split([3 * width, 4 * width], -1)
    q, k, v = _heads(joined, sizes.heads)
    q, k = _rms(q, w[f"{at}.norm.query_norm.scale"]), _rms(k, w[f"{at}.norm.key_norm.scale"])
    attended = _attend(_rotate(q, positions, sizes.rope_axes), _rotate(k, positions, sizes.rope_axes), v)
    return x + gate * _linear(w, f"{at}.linear2", torch.cat([attended, F.gelu(hidden, approximate="tanh")], -1))


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x.to(w[f"{name}.weight"].dtype) @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _plain_norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-6)


def _norm(w: Weights, name: str, x: Tensor) -> Tensor:
    return _plain_norm(x) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _rms(x: Tensor, scale: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale


def _sinusoid(time: Tensor) -> Tensor:
    frequencies = torch.exp(-math.log(10000) * torch.arange(128) / 128)
    angles = time[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def _heads(joined: Tensor, heads: int) -> list[Tensor]:
    """Query, key and value [n, heads, length, head] of a joined projection [n, length, 3 * width]."""
    n, length, width = joined.shape
    return [part.view(n, length, heads, width // 3 // heads).transpose(1, 2) for part in joined.chunk(3, -1)]


def _attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def _rotate(x: Tensor, positions: Tensor, axes: tuple[int, ...]) -> Tensor:
    angles = [positions[:, i, None] / 10000 ** (torch.arange(0, axis, 2) / axis) for i, axis in enumerate(axes)]
    angle = torch.cat(angles, -1)  # [length, head / 2]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1).flatten(-2)


def _patches(latents: Tensor) -> Tensor:
    cells = [
        latents[:, :, row : row + 2, column : column + 2].flatten(1)
        for row in range(0, latents.shape[2], 2)
        for column in range(0, latents.shape[3], 2)
    ]
    return torch.stack(cells, 1)


def _positions(latents: Tensor) -> Tensor:
    rows, columns = latents.shape[2] // 2, latents.shape[3] // 2
    return torch.tensor([(0.0, row, column) for row in range(rows) for column in range(columns)])
