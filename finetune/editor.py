"""The instruction-following image editor: codec, instruction encoder and denoiser as one module.

In: a square source image and an instruction. Out: the edited image, drawn by integrating the learnt flow from noise to image.
On disk an editor is a folder with `config.json` (configuration and vocabulary) and `model.safetensors`; equal editors give
equal bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from finetune.codec import PatchCodec
from finetune.config import EditorConfig
from finetune.denoiser import Denoiser
from finetune.rectified_flow import sampling_times
from finetune.text import TextEncoder, Vocabulary

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


class Editor(nn.Module):
    """An editor with random weights (`from_config`), stored weights (`from_directory`) or trained ones (`train`)."""

    def __init__(self, config: EditorConfig, codec: PatchCodec, vocabulary: Vocabulary) -> None:
        super().__init__()
        expected = (config.image_size, config.codec.patches_per_side, config.codec.channels)
        if (codec.image_size, codec.patches_per_side, codec.channels) != expected:
            raise ValueError(
                f"the codec was fitted for (image size, patches per side, channels) = "
                f"{(codec.image_size, codec.patches_per_side, codec.channels)}, the editor's configuration says {expected}"
            )
        self.config, self.vocabulary, self.codec = config, vocabulary, codec
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.text = TextEncoder(vocabulary, config.denoiser.text_dim)
            self.denoiser = Denoiser(config.denoiser, channels=config.codec.channels, patches_per_side=config.codec.patches_per_side)

    @classmethod
    def from_config(cls, config: EditorConfig, codec: PatchCodec, instructions: Sequence[str]) -> Self:
        """A new editor; its vocabulary and longest instruction are those of `instructions`."""
        return cls(config, codec, Vocabulary.build(instructions))

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Read what `save` wrote; ValueError if a file is missing, damaged or does not fit the other."""
        try:
            record = json.loads((directory / _CONFIG).read_text(encoding="utf-8"))
            config = EditorConfig.model_validate(record["editor"])
            vocabulary = Vocabulary(tuple(record["words"]), record["max_words"])
            sizes = config.image_size // config.codec.patches_per_side, config.codec.channels, config.codec.patches_per_side
            editor = cls(config, PatchCodec(*sizes), vocabulary)
            editor.load_state_dict(load((directory / _WEIGHTS).read_bytes()))
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{directory} contains no readable editor ({reason}); train or copy it again") from error
        return editor

    def save(self, directory: Path) -> None:
        """Write configuration, vocabulary and weights into `directory` (created if need be)."""
        directory.mkdir(parents=True, exist_ok=True)
        record = {
            "editor": self.config.model_dump(mode="json"),
            "max_words": self.vocabulary.max_words,
            "words": list(self.vocabulary.words),
        }
        text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (directory / _CONFIG).write_text(text, encoding="utf-8")
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        (directory / _WEIGHTS).write_bytes(save(tensors))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codec.basis.device

    def forward(self, latents: Tensor, time: Tensor, source: Tensor, word_ids: Tensor) -> Tensor:
        """Velocity [n, tokens, channels] of noisy latents at time [n], for source latents and word numbers [n, words]."""
        words, pooled = self.text(word_ids)
        return self.denoiser(latents, time, source, words, pooled)

    @torch.no_grad()
    def edit(
        self,
        source: np.ndarray,
        instructions: Sequence[str],
        *,
        seed: int | None = None,
        sample_ids: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Edited uint8 images [n, S, S, 3] of uint8 source images [n, S, S, 3].

        A sample's starting noise depends on the seed (default: the sampler's) and its id (default: its index) alone, or on
        its own of `seeds`, so an edit does not depend on its neighbours beyond the rounding of a differently shaped matrix product.
        """
        ids = [str(index) for index in range(len(source))] if sample_ids is None else list(sample_ids)
        if not len(source) == len(instructions) == len(ids) or len(seeds or ids) != len(ids):
            raise ValueError(f"{len(source)} images, {len(instructions)} instructions and {len(ids)} ids must be as many")
        sampler = self.config.sampler
        noise_seeds = [noise_seed(sampler.seed if seed is None else seed, name) for name in ids] if seeds is None else list(seeds)
        word_ids = self.vocabulary.encode(instructions)
        edited = np.empty_like(source)
        for start in range(0, len(source), sampler.batch_size):
            batch = slice(start, start + sampler.batch_size)
            noise = starting_noise(noise_seeds[batch], self.codec.tokens, self.codec.channels)
            latents = self._denoise(noise.to(self.device), self.codec.encode(source[batch]), word_ids[batch].to(self.device))
            edited[batch] = self.codec.decode(latents)
        return edited

    def _denoise(self, latents: Tensor, source: Tensor, word_ids: Tensor) -> Tensor:
        """Euler integration of the velocity from t = 1 to t = 0."""
        times = sampling_times(self.config.sampler.steps, self.config.objective.time_shift).tolist()
        words, pooled = self.text(word_ids)
        for now, after in itertools.pairwise(times):
            time = latents.new_full((len(latents),), now)
            latents = latents + (after - now) * self.denoiser(latents, time, source, words, pooled)
        return latents


def starting_noise(seeds: Sequence[int], tokens: int, channels: int) -> Tensor:
    """Standard normal noise [n, tokens, channels] on the CPU, each row a function of its seed."""
    return torch.stack([torch.randn(tokens, channels, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def noise_seed(seed: int, sample_id: str) -> int:
    """Seed of a sample's starting noise, in [0, 2^63)."""
    return seeded("edit", seed, sample_id).initial_seed()


def seeded(*key: int | str) -> torch.Generator:
    """A CPU random generator that is a function of the key."""
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
