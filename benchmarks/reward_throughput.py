"""What sharing saves: pairs/s in training and edits/s in scoring, against the layout of the public EditReward code, in one process.

    python benchmarks/reward_throughput.py                  # CPU, the sizes below, about ten minutes on one core
    python benchmarks/reward_throughput.py --pairs 2        # times 2 of the 21 pairs of the reference layout; gradients are not compared

Both sides have the same random weights, the same 448x448 images, one group of seven candidates. The reference layout runs plain transformers
pair by pair: per dimension one pass over (source, edit A, text) and (source, edit B, text), every image through the vision tower each time, the
text after the reward token included, the head on all positions. Ours is what `reward.train` and `reward.score` run. Gradients of the
whole group must agree. Prints a table of tokens, seconds, ratios and multiply-add FLOPs; exits with 1 when gradients differ.
"""

from __future__ import annotations

import sys as _s

_s.path.insert(0, "/tmp/dev")
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
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

from reward import EditSample, RewardModel, score
from reward.backbone import FAMILIES
from reward.batch import Presented
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.images import patchify
from reward.prompt import tokenise
from reward.tree import expand, node_positions

CANDIDATES = 7
AREA = 448 * 448
INSTRUCTION = "replace the red car on the left with a blue bicycle and keep the rest of the street as it is"
CLOSING = "\n\nEND\n"  # what the reference has after its reward token
GRADIENT_TOLERANCE = 1e-4
BACKBONE = BackboneConfig(
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
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=None, help="pairs of the reference layout that are run; default: all 21")
    parser.add_argument("--repeats", type=int, default=2, help="repetitions of our side; the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = {prompt: build(prompt) for prompt in ("reference", "rubric_first")}
    images = [noise_image(seed) for seed in range(CANDIDATES + 1)]
    source, edits = images[0], images[1:]
    pairs = list(combinations(range(CANDIDATES), 2))
    reference = PairByPair(models["reference"], source, edits)
    rubric = len(tokenise(models["reference"].tokenizer, models["reference"].prompt.branches[0], "x"))
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, torch {torch.__version__}, {options.threads} thread(s); rubric of {rubric} tokens"
    )

    timed = pairs[: options.pairs] if options.pairs else pairs
    seconds = cpu_seconds(lambda: [reference.step(a, b) for a, b in timed], 1) / len(timed)
    rows = [Row("training", "reference layout", reference.tokens_per_pair, seconds, seconds)]
    agree = True
    for prompt, model in models.items():
        presented = model.present(source=source, candidates=edits, instruction=INSTRUCTION)

        def step(model: RewardModel = model, presented: Presented = presented) -> None:
            model.zero_grad()
            output = model(model.collate([presented]))
            firsts, seconds = zip(*pairs, strict=True)
            pair_loss(output.mean[list(firsts)], output.mean[list(seconds)]).backward()

        taken = cpu_seconds(step, options.repeats) / len(pairs)
        tokens = (len(presented.tree) + len(model.prompt.root)) / len(pairs)
        rows.append(Row("training", f"tree, {prompt}", tokens, taken, seconds))
        if prompt == "reference" and options.pairs is None:
            difference = gradient_difference(reference.model, model)
            agree = difference < GRADIENT_TOLERANCE
            print(f"largest difference of a gradient, relative to the largest entry of its tensor: {difference:.1e}")

    edit_seconds = cpu_seconds(lambda: [reference.score(edit) for edit in range(2)], 1) / 2
    rows.append(Row("scoring", "reference layout", reference.tokens_per_pair / 2, edit_seconds, edit_seconds))
    for prompt, model in models.items():
        # sources differ between edits when a data set is scored: nothing but the prompt is shared
        samples = [EditSample(noise_image(100 + number), INSTRUCTION, edit) for number, edit in enumerate(edits)]
        taken = cpu_seconds(lambda model=model, samples=samples: score(model=model, samples=samples), options.repeats) / len(samples)
        tree = model.present(source=source, candidates=edits[:1], instruction=INSTRUCTION).tree
        rows.append(Row("scoring", f"tree, {prompt}", len(tree), taken, edit_seconds))
    print("\n| task | layout | tokens per pair or edit | CPU-s per pair or edit | times the reference layout |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.task} | {row.layout} | {row.tokens:.0f} | {row.seconds:.3f} | {row.against / row.seconds:.2f} |")
    return 0 if agree else 1


@dataclass(frozen=True)
class Row:
    """One line of the table; seconds and tokens are per pair in training, per edit in scoring."""

    task: str
    layout: str
    tokens: float
    seconds: float
    against: float


def build(prompt: Any) -> RewardModel:
    config = RewardModelConfig(
        backbone=BACKBONE,
        presentation=PresentationConfig(layout="images", prompt=prompt, image_area=AREA),
        heads=HeadConfig(hidden=(1024, 16)),
    )
    return RewardModel.from_config(config, [INSTRUCTION, CLOSING], seed=0)


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
        plain = Qwen2_5_VLModel(Qwen2_5_VLConfig.from_dict(model.backbone.config.to_dict()))
        plain.load_state_dict(model.backbone.state_dict())
        plain.set_attn_implementation("sdpa")
        self.model.backbone = plain
        prompt = model.prompt
        closing = tokenise(model.tokenizer, CLOSING, "")
        start = [*prompt.root, *tokenise(model.tokenizer, prompt.source + prompt.edit, "")]
        self.pixels, grids = [], []
        for image in (source, *edits):
            stack = model.present(source=source, candidates=[image], instruction=INSTRUCTION).stacks[-1][-1:]
            patches = patchify(stack, patch_size=14, merge_size=2, statistics=FAMILIES["qwen2_5_vl"].statistics)
            self.pixels.append(patches)
            grids.append((stack.shape[2] // 14, stack.shape[3] // 14))
        self.grid = torch.tensor([[1, *grids[0]]])
        self.ids, self.positions, self.reward = [], [], []
        for branch in prompt.branches:
            ids = [*start, *tokenise(model.tokenizer, branch, INSTRUCTION)]
            self.reward.append(len(expand(ids, grids[:2], vision_token=prompt.vision_token, merge_size=2)) - 1)
            row = expand([*ids, *closing], grids[:2], vision_token=prompt.vision_token, merge_size=2)
            self.ids.append(row)
            self.positions.append(node_positions(row == prompt.vision_token, grids[:2], start=0, merge_size=2, flat=False)[0])

    @property
    def tokens_per_pair(self) -> float:
        return 2 * sum(len(row) for row in self.ids)

    def means(self, edits: list[int]) -> Tensor:
        """[edit, dimension], one pass per dimension."""
        backbone, columns = self.model.backbone, []
        for dimension, name in enumerate(self.model.config.dimensions):
            pixels = torch.cat([part for edit in edits for part in (self.pixels[0], self.pixels[1 + edit])])
            features = backbone.visual(pixels, grid_thw=self.grid.repeat(2 * len(edits), 1)).pooler_output
            ids = self.ids[dimension].repeat(len(edits), 1)  # [edit, token]
            embeddings = backbone.get_input_embeddings()(ids)
            places = (ids == self.model.prompt.vision_token)[..., None].expand_as(embeddings)
            embeddings = embeddings.masked_scatter(places, features)
            rewards = (ids == self.model.prompt.reward_token)[..., None]
            embeddings = torch.where(rewards, self.model.reward_embedding[0], embeddings)
            positions = self.positions[dimension][:, None].expand(-1, len(edits), -1)
            states = backbone.language_model(inputs_embeds=embeddings, position_ids=positions, use_cache=False).last_hidden_state
            mean, _ = self.model.heads.of[name](states)  # every position, as in the public code
            columns.append(mean[:, self.reward[dimension]])
        return torch.stack(columns, dim=1)

    def step(self, a: int, b: int) -> None:
        mean = self.means([a, b])
        pair_loss(mean[:1], mean[1:]).backward()

    @torch.no_grad()
    def score(self, edit: int) -> Tensor:
        return self.means([edit])


def cpu_seconds(task: Callable[[], Any], repeats: int) -> float:
    """Least CPU time of the process over some repetitions."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        task()
        found.append(time.process_time() - started)
    return min(found)


def gradient_difference(one: RewardModel, other: RewardModel) -> float:
    """Over all parameters, the largest difference of a gradient relative to the largest entry of its tensor."""
    worst = 0.0
    for (name, first), (_, second) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        if first.grad is None or second.grad is None:
            assert first.grad is None and second.grad is None, name
            continue
        worst = max(worst, float((first.grad - second.grad).abs().max() / first.grad.abs().max().clamp(min=1e-12)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
