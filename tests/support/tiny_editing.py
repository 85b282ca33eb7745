"""A tiny editor of both halves (`finetune.editing_model`) without a library's model: what training needs of any family."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from finetune.editing_model import Condition, Moments, padded
from finetune.precompute.encode import encode_null, encode_pair
from finetune.precompute.entry import EncodedPair
from finetune.training.pairs import Bucket

CHANNELS, WIDTH, LENGTH = 4, 16, 24


class TinyEncoders:
    """Latents are averaged pixels; a condition is a number per letter beside the source's mean colour."""

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        scale = (side**2 / (width * height)) ** 0.5
        return max(8, int(width * scale) // 8 * 8), max(8, int(height * scale) // 8 * 8)

    def encode_images(self, images: Sequence[Image.Image]) -> list[Moments]:
        return [self._moments(image) for image in images]

    def _moments(self, image: Image.Image) -> Moments:
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 127.5 - 1  # [3, height, width]
        mean = nn.functional.avg_pool2d(pixels, 8)
        mean = torch.cat([mean, mean.mean(0, keepdim=True)])
        return Moments(mean, torch.full_like(mean, 0.01))

    def unread(self, source: Image.Image, instruction: str) -> str:
        return ""

    def encode_condition(self, source: Image.Image, instruction: str) -> Condition:
        letters = torch.tensor([ord(letter) % 32 / 16 - 1 for letter in f"|{instruction}"])
        colour = torch.from_numpy(np.asarray(source).mean((0, 1)) / 127.5 - 1).float()
        return {"words": torch.cat([letters[:, None], colour.expand(len(letters), 3)], 1)}  # [length, 4]

    def decode(self, latents: Tensor) -> list[Image.Image]:
        pixels = ((latents[:, :3].clamp(-1, 1) + 1) * 127.5).byte().repeat_interleave(8, 2).repeat_interleave(8, 3)
        return [Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()) for image in pixels]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.unread = nn.Linear(WIDTH, WIDTH)  # as the last blocks of some families have

    def forward(self, tokens: Tensor) -> Tensor:  # [n, tokens, WIDTH]
        attended = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return tokens + self.out(torch.tanh(self.mix(attended)))


class TinyModel(nn.Module):
    block_lists = ("blocks",)
    connector_name = "reader"
    idle_layers = ()
    last_time = None
    rescales_guidance = False
    fused_projections = ()

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.enter, self.leave = nn.Linear(CHANNELS, WIDTH), nn.Linear(WIDTH, CHANNELS)
            self.reader = nn.Linear(4, WIDTH)
            self.clock = nn.Linear(1, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.to(dtype)

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        words, mask = padded([condition["words"] for condition in conditions], LENGTH)
        return {"words": words, "mask": mask}

    def resolution_shift(self, rows: int, columns: int) -> float:
        return 1 + rows * columns / 64

    def forward(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        n, _, rows, columns = noisy.shape
        dtype = self.enter.weight.dtype
        images = [image.flatten(2).transpose(1, 2).to(dtype) for image in (noisy, reference)]
        words = self.reader(condition["words"].to(dtype)) * condition["mask"][..., None]
        tokens = torch.cat([self.enter(torch.cat(images, 1)), words.to(dtype)], 1) + self.clock(time.to(dtype)[:, None])[:, None]
        for block in self.blocks:
            tokens = block(tokens)
        return self.leave(tokens[:, : rows * columns]).transpose(1, 2).reshape(n, CHANNELS, rows, columns)


class PairsInMemory:
    """Stored pairs that are in memory."""

    def __init__(self, pairs: Sequence[EncodedPair], nulls: Sequence[Condition]) -> None:
        sizes = [Bucket(*pair.target.mean.shape[1:], *pair.reference.mean.shape[1:]) for pair in pairs]
        self.buckets = tuple(sorted(set(sizes)))
        self.bucket_of = np.array([self.buckets.index(size) for size in sizes], np.int64)
        self.pairs, self.nulls = pairs, nulls
        self.identity = hashlib.sha256(repr([pair.target.mean.sum() for pair in pairs]).encode()).hexdigest()

    def read(self, number: int) -> EncodedPair:
        return self.pairs[number]

    def read_null(self, number: int) -> Condition:
        return self.nulls[number]


def drawn_images(count: int, seed: int = 0) -> list[tuple[Image.Image, Image.Image, str]]:
    """Source, edited image and instruction: a grey image with a square whose colour the edit changes; two aspect ratios."""
    generator = np.random.default_rng(seed)
    drawn = []
    for number in range(count):
        size = (64, 48) if number % 3 else (40, 40)
        source = np.full((size[1], size[0], 3), 128, np.uint8)
        source[8:24, 8:24] = generator.integers(0, 256, 3)
        edited = source.copy()
        colour = ("red", "green", "blue")[number % 3]
        edited[8:24, 8:24] = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}[colour]
        drawn.append((Image.fromarray(source), Image.fromarray(edited), f"make the square {colour}"))
    return drawn


def tiny_pairs(count: int, seed: int = 0) -> PairsInMemory:
    encoders = TinyEncoders()
    images = drawn_images(count, seed)
    sizes = [encoders.working_size(*source.size, 48) for source, _, _ in images]
    pairs = [encode_pair(encoders, *image, size) for image, size in zip(images, sizes, strict=True)]
    return PairsInMemory(pairs, [encode_null(encoders, image[0], size) for image, size in zip(images, sizes, strict=True)])
