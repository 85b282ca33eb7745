"""What sharing saves: pairs/s in training and edits/s in scoring, against the layout of the public EditReward code, in one process.

    python benchmarks/reward_throughput.py                               # CPU, small sizes, about ten minutes on one core
    python benchmarks/reward_throughput.py --pairs 2                     # runs 2 of the reference layout's 21 pairs; no gradient check
    python benchmarks/reward_throughput.py --size 7b --device cuda --pairs 2

Both sides have the same random weights, the same 448x448 images, one group of seven candidates and rubrics of the same number of tokens.
The reference layout runs plain transformers pair by pair: per dimension one pass over (source, edit A, text) and (source, edit B, text),
every image decoded and through the vision tower each time, the text after the reward token included, the head on all positions. Ours is
what `reward.train` and `reward.score` run; scored edits have sources of their own. On the CPU, seconds are those of the process in float32;
on CUDA those of the wall in bfloat16. Gradients of the whole group must agree (CPU): exits with 1 when they do not.
"""

from __future__ import annotations

import argparse
import copy
import io
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

from reward import EditSample, RewardModel, score
from reward.config import DIMENSIONS, BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inference.compute import peak_of
from reward.inputs.decoding import decode
from reward.inputs.images import patchify, resize
from reward.inputs.prompt import tokenise
from reward.inputs.tree import expand, node_positions
from reward.model.backbone import FAMILIES

CANDIDATES = 7
AREA = 448 * 448
RUBRIC_TOKENS = 145
INSTRUCTION = "replace the red car on the left with a blue bicycle and keep the rest of the street as it is"
CLOSING = "\n\nEND\n"  # what the reference has after its reward token
GRADIENT_TOLERANCE = 5e-4  # float32, 42 passes summed in another order than one; at small sizes tests/reward/test_tree.py holds 1e-5
SIZES = {
    "small": BackboneConfig(
        text_hidden=512,
        text_intermediate=1408,
        text_layers=8,
        text_heads=8,
        text_kv_heads=2,
        rope_theta=1_000_000,
        initializer_range=0.02,
        vision_hidden=256,
        vision_intermediate=1024,
        vision_depth=4,
        vision_heads=4,
        patch_size=14,
        merge_size=2,
    ),
    "7b": BackboneConfig(  # Qwen2.5-VL-7B, but with full attention in all vision blocks
        text_hidden=3584,
        text_intermediate=18944,
        text_layers=28,
        text_heads=28,
        text_kv_heads=4,
        rope_theta=1_000_000,
        initializer_range=0.02,
        vision_hidden=1280,
        vision_intermediate=3420,
        vision_depth=32,
        vision_heads=16,
        patch_size=14,
        merge_size=2,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=None, help="pairs of the reference layout that are run; default: all 21")
    parser.add_argument("--repeats", type=int, default=2, help="repetitions of our side; the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    images = [noise_image(seed) for seed in range(CANDIDATES + 1)]
    source, edits = images[0], images[1:]
    every_pair = list(combinations(range(CANDIDATES), 2))
    timed = every_pair[: options.pairs] if options.pairs else every_pair
    where = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {where}, torch {torch.__version__}, {options.threads} thread(s), size {options.size}")

    rows: list[Row] = []
    agree = True
    for prompt in ("reference", "rubric_first"):
        model = build(prompt, options.size, device)
        if prompt == "reference":
            layout = PairByPair(model, source, edits)
            operations = counted(lambda layout=layout: layout.step(*timed[0]))
            layout.model.zero_grad()
            taken = seconds_of(lambda layout=layout: [layout.step(a, b) for a, b in timed], 1, device)
            rows.append(Row("training", "reference layout", layout.tokens_per_pair, taken / len(timed), operations))
        group = model.prepare(source=source, candidates=edits, instruction=INSTRUCTION)
        firsts, seconds = (list(side) for side in zip(*every_pair, strict=True))
        if device.type == "cuda":
            model.backbone.activation_checkpointing_enable()
            model.train()

        def step(model: RewardModel = model, group: Any = group, firsts: list[int] = firsts, seconds: list[int] = seconds) -> None:
            model.zero_grad()
            output = model(model.collate([group]))
            pair_loss(output.mean[firsts], output.mean[seconds]).backward()

        operations = counted(step)
        taken = seconds_of(step, options.repeats, device)
        tokens = (len(group.tree) + len(model.prompt.root)) / len(every_pair)
        rows.append(Row("training", f"tree, {prompt}", tokens, taken / len(every_pair), operations / len(every_pair)))
        if prompt == "reference" and options.pairs is None and device.type == "cpu":
            difference = gradient_difference(layout.model, model)
            agree = difference < GRADIENT_TOLERANCE
            print(f"largest difference of a gradient, relative to the largest entry of its tensor: {difference:.1e}")
        model.zero_grad()
        model.eval()
        if prompt == "reference":
            layout.model.zero_grad()
            operations = counted(lambda layout=layout: layout.score(0))
            taken = seconds_of(lambda layout=layout: [layout.score(edit) for edit in range(CANDIDATES)], options.repeats, device)
            rows.append(Row("scoring", "reference layout", layout.tokens_per_pair / 2, taken / CANDIDATES, operations))
            del layout
        samples = [
            EditSample(noise_image(100 + number), INSTRUCTION, edit)
            for number, edit in enumerate(edits * (4 if device.type == "cuda" else 1))
        ]
        operations = counted(lambda model=model, samples=samples: score(model=model, samples=samples))
        taken = seconds_of(lambda model=model, samples=samples: score(model=model, samples=samples), options.repeats, device)
        one = model.prepare(source=source, candidates=edits[:1], instruction=INSTRUCTION).tree
        rows.append(Row("scoring", f"tree, {prompt}", len(one), taken / len(samples), operations / len(samples)))
    print_table(rows, peak_of(device))
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    return 0 if agree else 1


@dataclass(frozen=True)
class Row:
    """One line of the table; tokens, seconds and operations are per pair in training, per edit in scoring."""

    task: str
    layout: str
    tokens: float
    seconds: float
    operations: float


def print_table(rows: list[Row], peak: float | None) -> None:
    base = {row.task: row.seconds for row in rows if row.layout == "reference layout"}
    print("\n| task | layout | tokens | seconds | TFLOP | per second | times the reference layout | MFU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        used = "" if peak is None else f"{row.operations / row.seconds / peak:.1%}"
        print(
            f"| {row.task} | {row.layout} | {row.tokens:.0f} | {row.seconds:.3f} | {row.operations / 1e12:.4f} | {1 / row.seconds:.2f} "
            f"| {base[row.task] / row.seconds:.2f} | {used} |"
        )


def build(prompt: Any, size: str, device: torch.device) -> RewardModel:
    words = " ".join(f"criterion{number}" for number in range(RUBRIC_TOKENS))
    rubric = words if prompt == "rubric_first" else f"{words} {{instruction}}"
    config = RewardModelConfig(
        backbone=SIZES[size],
        presentation=PresentationConfig(layout="images", prompt=prompt, rubrics=dict.fromkeys(DIMENSIONS, rubric), image_area=AREA),
        heads=HeadConfig(hidden=(1024, 16)),
    )
    with torch.device(device):
        model = RewardModel.from_config(config, [INSTRUCTION, CLOSING], seed=0)
    if device.type == "cuda":
        _in_half(model.backbone)
    return model.to(device).use_attention("auto").eval()


def _in_half(module: torch.nn.Module) -> None:
    """Weights in bfloat16; rotary frequencies stay float32, as `RewardModel.load` has them."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)


def noise_image(seed: int) -> bytes:
    """A 448x448 PNG of coarse coloured noise."""
    small = np.random.default_rng(seed).integers(0, 256, size=(28, 28, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize((448, 448), Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


def pair_loss(mean_a: Tensor, mean_b: Tensor) -> Tensor:
    """Bradley-Terry on the overall score and per dimension, summed: any loss would do here. [pair, dimension] twice."""
    margin = mean_a - mean_b
    return F.softplus(-margin.mean(-1)).sum() + F.softplus(-margin).sum()


class PairByPair:
    """The same model in the layout of the public code, on transformers' own forward and attention."""

    def __init__(self, model: RewardModel, source: bytes, edits: list[bytes]) -> None:
        self.model = copy.deepcopy(model)
        self.device = model.device
        plain = Qwen2_5_VLModel(Qwen2_5_VLConfig.from_dict(model.backbone.config.to_dict()))
        plain.load_state_dict(model.backbone.state_dict())
        plain.to(self.device).set_attn_implementation("sdpa")
        if self.device.type == "cuda":
            _in_half(plain)
        self.model.backbone = plain
        prompt = model.prompt
        closing = tokenise(model.tokenizer, CLOSING, "")
        start = [*prompt.root, *tokenise(model.tokenizer, prompt.source + prompt.edit, "")]
        self.images = [source, *edits]
        grids = [(448 // 14, 448 // 14)] * 2
        self.grid = torch.tensor([[1, *grids[0]]], device=self.device)
        self.ids, self.positions, self.reward = [], [], []
        for branch in prompt.branches:
            ids = [*start, *tokenise(model.tokenizer, branch, INSTRUCTION)]
            self.reward.append(len(expand(ids, grids, vision_token=prompt.vision_token, merge_size=2)) - 1)
            row = expand([*ids, *closing], grids, vision_token=prompt.vision_token, merge_size=2)
            self.ids.append(row.to(self.device))
            self.positions.append(node_positions(row == prompt.vision_token, grids, start=0, merge_size=2, flat=False)[0].to(self.device))

    @property
    def tokens_per_pair(self) -> float:
        """Language tokens of four passes."""
        return 2 * sum(len(row) for row in self.ids)

    def pixels(self, number: int) -> Tensor:
        """Patches of an image, decoded anew as in the public code."""
        image = resize(decode(self.images[number]), (448, 448))
        patches = patchify(image[None, None], patch_size=14, merge_size=2, statistics=FAMILIES["qwen2_5_vl"].statistics)
        return patches.to(self.device)

    def means(self, edits: list[int]) -> Tensor:
        """[edit, dimension], one pass per dimension."""
        backbone, columns = self.model.backbone, []
        for dimension, name in enumerate(self.model.config.dimensions):
            pixels = torch.cat([self.pixels(number) for edit in edits for number in (0, 1 + edit)])
            features = backbone.visual(pixels, grid_thw=self.grid.repeat(2 * len(edits), 1)).pooler_output
            ids = self.ids[dimension].repeat(len(edits), 1)  # [edit, token]
            embeddings = backbone.get_input_embeddings()(ids)
            places = (ids == self.model.prompt.vision_token)[..., None].expand_as(embeddings)
            embeddings = embeddings.masked_scatter(places, features)
            rewards = (ids == self.model.prompt.reward_token)[..., None]
            embeddings = torch.where(rewards, self.model.reward_embedding[0].to(embeddings.dtype), embeddings)
            positions = self.positions[dimension][:, None].expand(-1, len(edits), -1)
            states = backbone.language_model(inputs_embeds=embeddings, position_ids=positions, use_cache=False).last_hidden_state
            mean, _ = self.model.heads.of[name](states.float())  # every position, as in the public code
            columns.append(mean[:, self.reward[dimension]])
        return torch.stack(columns, dim=1)

    def step(self, a: int, b: int) -> None:
        """Forward and backward of one pair; gradients add up."""
        mean = self.means([a, b])
        pair_loss(mean[:1], mean[1:]).backward()

    @torch.no_grad()
    def score(self, edit: int) -> Tensor:
        """Both dimensions of one edit."""
        return self.means([edit])


def counted(task: Callable[[], Any]) -> float:
    """Floating-point operations of a task."""
    with FlopCounterMode(display=False) as counter:
        task()
    return float(counter.get_total_flops())


def seconds_of(task: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """Least seconds of some repetitions."""
    found = []
    for _ in range(repeats):
        started = now(device)
        task()
        found.append(now(device) - started)
    return min(found)


def now(device: torch.device) -> float:
    """CPU time of the process; on CUDA the wall clock, with nothing under way."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def gradient_difference(one: RewardModel, other: RewardModel) -> float:
    """Over all parameters, the largest difference of a gradient relative to the largest entry of its tensor.

    A tensor whose gradient vanishes (a shift of all scores) is taken relative to a thousandth of the largest entry of all.
    """
    pairs = [(first.grad, second.grad) for first, second in zip(one.parameters(), other.parameters(), strict=True)]
    assert all((first is None) == (second is None) for first, second in pairs)
    found = [(first, second) for first, second in pairs if first is not None and second is not None]
    least = max(float(first.abs().max()) for first, _ in found) / 1000
    return max(float((first - second).abs().max()) / max(float(first.abs().max()), least) for first, second in found)


if __name__ == "__main__":
    sys.exit(main())
