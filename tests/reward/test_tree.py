"""Packed trees give what separate prompts give: states, scores and gradients, against transformers' own forward and attention."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from reward import RewardModel
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inference.passes import Inference
from reward.inputs.batch import Batch, PreparedSample, packed
from reward.inputs.images import patchify
from reward.inputs.tree import node_positions
from reward.model.attention import tree_attention
from reward.model.backbone import FAMILIES, encode

INSTRUCTIONS = ("Make the red circle blue.", "add a yellow square", "remove the cross at the top and add a small green star below it")
KINDS = [("clip", "words"), ("clip", "reference"), ("images", "words"), ("images", "reference"), ("images", "rubric_first")]
FAMILY_NAMES = tuple(FAMILIES)


def png(seed: int, size: tuple[int, int]) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make(layout: str, prompt: str, *, family: str = "qwen2_5_vl", positions: str = "mrope", merge_size: int = 1) -> RewardModel:
    backbone = {"family": family, "text_hidden": 32, "text_intermediate": 32, "text_heads": 2, "text_kv_heads": 1, "vision_hidden": 16}
    sizes = {"vision_intermediate": 16, "vision_heads": 2, "vision_depth": 2, "patch_size": 8, "merge_size": merge_size}
    config = RewardModelConfig(
        backbone=BackboneConfig.model_validate(backbone | sizes),
        presentation=PresentationConfig.model_validate({"layout": layout, "prompt": prompt, "positions": positions, "image_area": 400}),
        heads=HeadConfig(hidden=(8,)),
    )
    return RewardModel.from_config(config, INSTRUCTIONS, seed=1).eval()


def stock(model: RewardModel) -> Any:
    """The same weights in transformers' own forward and attention."""
    family = FAMILIES[model.config.backbone.family]
    plain = family.model(family.config.from_dict(model.backbone.config.to_dict())).eval()
    plain.load_state_dict(model.backbone.state_dict())
    plain.set_attn_implementation("sdpa")
    return plain


def prompts_of(model: RewardModel, prepared: PreparedSample) -> list[tuple[list[tuple[Tensor, Tensor]], list[int]]]:
    """Per leaf of a tree: its vision inputs (frames, grid) with the token ids of the whole path, and the path's tokens in the tree."""
    items = [item for stack in prepared.stacks for item in stack]
    parents = {tuple(path[:-length].tolist()) for length, path in prepared.tree.paths}
    leaves = [path for _, path in prepared.tree.paths if tuple(path.tolist()) not in parents]
    found = []
    root = len(model.prompt.root)
    for leaf in leaves:
        tokens = (leaf[root:] - root).tolist()
        vision = (prepared.tree.input_ids == model.prompt.vision_token).tolist()
        item_of, run = {}, -1
        for place in range(len(vision)):
            run += vision[place] and (place == 0 or not vision[place - 1])
            item_of[place] = prepared.tree.items[run] if vision[place] else None
        shown = list(dict.fromkeys(item_of[token] for token in tokens if vision[token]))
        found.append(([items[number] for number in shown], tokens))
    return found


def stock_states(model: RewardModel, plain: Any, prepared: PreparedSample) -> Tensor:
    """[candidate, dimension, hidden] from one separate forward per leaf."""
    kind = "video" if model.config.presentation.layout == "clip" else "image"
    states: dict[int, Tensor] = {}
    for shown, tokens in prompts_of(model, prepared):
        ids = torch.cat([torch.tensor(model.prompt.root, dtype=torch.int64), prepared.tree.input_ids[tokens]])[None]
        arguments = {"patch_size": model.patch_size, "merge_size": model.prompt.merge_size}
        statistics = FAMILIES[model.config.backbone.family].statistics
        pixels = torch.cat([patchify(frames[None], **arguments, statistics=statistics) for frames in shown])
        grid = torch.tensor([[1, frames.shape[1] // model.patch_size, frames.shape[2] // model.patch_size] for frames in shown])
        names = ("pixel_values_videos", "video_grid_thw") if kind == "video" else ("pixel_values", "image_grid_thw")
        embeddings = plain.get_input_embeddings()(ids)
        places = (ids[0] == model.prompt.reward_token).nonzero()[:, 0]
        turns = torch.arange(len(places)) % len(model.reward_embedding)
        embeddings = embeddings.index_put((torch.zeros_like(places), places), model.reward_embedding[turns])
        further = {}
        if model.prompt.flat:
            further["position_ids"] = torch.arange(ids.shape[1]).expand(3, 1, -1)
        else:
            types = (ids == model.prompt.vision_token).int() * (2 if kind == "video" else 1)
            further["position_ids"] = plain.get_rope_index(ids, types, **{names[1]: grid})[0]
        output = (
            plain(
                inputs_embeds=vision_filled(plain, embeddings, ids, pixels, grid, model.prompt.vision_token)[0],
                attention_mask=torch.ones_like(ids),
                **further,
            )
            if family_is_2_5(model)
            else qwen3_forward(plain, embeddings, ids, pixels, grid, model.prompt.vision_token, further["position_ids"])
        )
        hidden = output.last_hidden_state[0]
        for place, token in enumerate(tokens):
            states[token] = hidden[len(model.prompt.root) + place]
    return torch.stack([torch.stack([states[token] for token in row]) for row in prepared.tree.reads.tolist()])


def family_is_2_5(model: RewardModel) -> bool:
    return model.config.backbone.family == "qwen2_5_vl"


def vision_filled(plain: Any, embeddings: Tensor, ids: Tensor, pixels: Tensor, grid: Tensor, token: int) -> tuple[Tensor, Any]:
    output = plain.visual(pixels, grid_thw=grid)
    places = (ids == token)[..., None].expand_as(embeddings)
    return embeddings.masked_scatter(places, output.pooler_output), output


def qwen3_forward(plain: Any, embeddings: Tensor, ids: Tensor, pixels: Tensor, grid: Tensor, token: int, positions: Tensor) -> Any:
    filled, output = vision_filled(plain, embeddings, ids, pixels, grid, token)
    return plain.language_model(
        inputs_embeds=filled, position_ids=positions, visual_pos_masks=ids == token, deepstack_visual_embeds=output.deepstack_features
    )


def states_read(model: RewardModel, batch: Batch) -> Tensor:
    """[edit, dimension, hidden]"""
    read = batch.reads.flatten()
    states = encode(model.backbone, batch, keep=read, reward_vectors=model.reward_embedding)
    return states.unflatten(0, batch.reads.shape)


def sets_of(model: RewardModel, shapes: list[list[tuple[int, int]]]) -> list[PreparedSample]:
    return [
        model.prepare(
            source=png(10 + number, shape[0]),
            candidates=[png(100 * number + 20 + place, size) for place, size in enumerate(shape[1:])],
            instruction=INSTRUCTIONS[number % len(INSTRUCTIONS)],
        )
        for number, shape in enumerate(shapes)
    ]


sizes = st.tuples(st.integers(6, 60), st.integers(6, 60))
groups = st.lists(st.lists(sizes, min_size=2, max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize("positions", ["mrope", "flat"])
@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=groups)
def test_a_packed_forest_equals_separate_prompts(shapes: list, kind: tuple[str, str], family: str, positions: str) -> None:
    """Outputs and gradients of random groups, image sizes and instruction lengths."""
    model = make(*kind, family=family, positions=positions)
    plain = stock(model)
    sets = sets_of(model, shapes)
    batch = model.collate(sets)
    hidden = states_read(model, batch)
    expected = torch.cat([stock_states(model, plain, prepared) for prepared in sets])
    assert (hidden - expected).abs().max() < 1e-5
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
    (hidden * weights).sum().backward()
    own = model.reward_embedding.grad
    model.reward_embedding.grad = None
    (expected * weights).sum().backward()
    assert own is not None and model.reward_embedding.grad is not None
    assert torch.allclose(own, model.reward_embedding.grad, atol=1e-4)
    for (name, mine), (_, theirs) in zip(model.backbone.named_parameters(), plain.named_parameters(), strict=True):
        if mine.grad is None:
            assert theirs.grad is None or not theirs.grad.any(), name
            continue
        assert (mine.grad - theirs.grad).abs().max() <= 1e-5 * max(1.0, float(theirs.grad.norm())), name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[0] == "images"])
def test_a_cached_root_changes_nothing(kind: tuple[str, str]) -> None:
    model = make(*kind)
    sets = sets_of(model, [[(20, 20), (20, 20), (30, 16)], [(16, 30), (20, 20)]])
    with torch.no_grad():
        whole = model(model.collate(sets))
        root = model.cached_root()
        cached = model(model.collate(sets, root_cached=True), root)
        assert root is not None and len(root) == model.config.backbone.text_layers
    assert len(model.collate(sets, root_cached=True).input_ids) == len(model.collate(sets).input_ids) - len(model.prompt.root)
    assert (whole.mean - cached.mean).abs().max() < 1e-5 and (whole.sigma - cached.sigma).abs().max() < 1e-5
    assert make("clip", "words").cached_root() is None


def test_passes_do_not_depend_on_the_budget() -> None:
    model = make("images", "rubric_first")
    sets = sets_of(model, [[(20, 20), (20, 20), (30, 16)], [(16, 30), (20, 20)], [(20, 20), (24, 24), (20, 20)]])
    together, alone = (torch.cat([out.mean for _, out in Inference(model, n).passes(sets)]) for n in (10_000, 1))
    assert (together - alone).abs().max() < 1e-5
    assert [len(part) for part in packed(sets, 1)] == [1, 1, 1] and [len(part) for part in packed(sets, 10_000)] == [3]


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("merge_size", [1, 2])
def test_positions_are_those_of_transformers(family: str, merge_size: int) -> None:
    model = make("images", "rubric_first", family=family, merge_size=merge_size)
    (prepared,) = sets_of(model, [[(40, 24), (20, 50)]])
    batch = model.collate([prepared])
    ids = batch.input_ids[None]
    grid = torch.tensor([[1, *grid] for grid, stack in zip(batch.grids, batch.stacks, strict=True) for _ in range(len(stack))])
    expected, _ = model.backbone.get_rope_index(ids, (ids == model.prompt.vision_token).int(), image_grid_thw=grid)
    assert torch.equal(batch.position_ids, expected[:, 0])


def test_flat_positions_count_tokens() -> None:
    positions, following = node_positions(torch.tensor([False, True, True]), [(1, 2)], start=4, merge_size=1, flat=True)
    assert positions.tolist() == [[4, 5, 6]] * 3 and following == 7


def test_nothing_is_padded_and_a_source_stands_once() -> None:
    model = make("images", "reference")
    (prepared,) = sets_of(model, [[(20, 20)] + [(20, 20)] * 7])
    tree = prepared.tree
    prompt = len(model.collate([prepared]).input_ids)
    one = model.prepare(source=png(1, (20, 20)), candidates=[png(2, (20, 20))], instruction=INSTRUCTIONS[0]).tree
    source, edit, *branches = (length for length, _ in one.paths)
    assert prompt == len(model.prompt.root) + source + 7 * (edit + sum(branches)) and len(tree.reads) == 7
    assert sum(len(stack) for stack in prepared.stacks) == 8


def test_variable_length_kernel_gets_the_same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself runs on CUDA only; here a loop over its arguments replaces it."""

    def looped(query: Tensor, key: Tensor, value: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int, **options: Any) -> Tensor:
        assert options["window_size"] == (-1, 0) and options["enable_gqa"]
        outputs = []
        for number in range(len(cu_q) - 1):
            q = query[cu_q[number] : cu_q[number + 1]].transpose(0, 1)
            k, v = (part[cu_k[number] : cu_k[number + 1]].transpose(0, 1) for part in (key, value))
            assert q.shape[1] <= max_q and k.shape[1] <= max_k
            seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=options["scale"], enable_gqa=True)
            outputs.append(attended.transpose(0, 1))
        return torch.cat(outputs)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", looped)
    model = make("images", "reference")
    batch: Batch = model.collate(sets_of(model, [[(20, 20), (20, 20), (30, 16)], [(16, 30), (20, 20)]]))
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, len(batch.input_ids), 8, generator=generator)
    key, value = (torch.randn(1, 2, len(batch.input_ids), 8, generator=generator) for _ in range(2))
    module = torch.nn.Identity()
    arguments = {"attention_mask": None, "scaling": 0.3, "tree": batch.attention}
    blocks, _ = tree_attention(module, query, key, value, kind="blocks", **arguments)
    kernel, _ = tree_attention(module, query, key, value, kind="varlen", **arguments)
    assert (blocks - kernel).abs().max() < 1e-5
