"""What precomputing, training and sampling call of an image editor, whichever family it is of.

An editor has two halves. `Encoders` are frozen: they turn images and instructions into tensors, which do not change during training and
are computed once. An `EditingModel` is trained: it predicts the velocity of the rectified flow from those tensors. A training loads only
the second half.

Latents are [channels, rows, columns], in the unit scale in which the model learns: the VAE's shift and scale are applied already, and what
a family packs into tokens, its model packs itself. Noise is drawn in that shape. Time is float32 in [0, 1]: 0 is the image, 1 is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor, nn

Condition = dict[str, Tensor]
"""What a model knows of source and instruction beside latents, by names that its family chooses: one sample's tensors at their true length,
or after `EditingModel.collate` a batch's, with one row per sample."""


@dataclass(frozen=True)
class Moments:
    """A VAE's posterior of one image: mean and standard deviation, each [channels, rows, columns]."""

    mean: Tensor
    deviation: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """A latent [channels, rows, columns] for standard normal noise of that shape."""
        return self.mean + self.deviation * noise


@dataclass(frozen=True)
class ExampleInput:
    """What one pair is to a model: the shape of its latents [channels, rows, columns], and its condition."""

    latent: tuple[int, int, int]
    condition: Condition


Decoder = Callable[[Tensor], list[Image.Image]]
"""From latents [n, channels, rows, columns] to RGB images."""


class Encoders(Protocol):
    """The frozen half. Nothing of it is random: what is to be sampled is returned as moments."""

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        """Width and height at which an image is edited: its ratio, an area of about side ** 2, multiples that the model takes."""
        ...

    def encode_images(self, images: Sequence[Image.Image]) -> list[Moments]:
        """Moments of RGB images that have one working size."""
        ...

    def unread(self, source: Image.Image, instruction: str) -> str:
        """Why a source in its working size and an instruction are longer than the family reads; empty where all is read.

        `encode_condition` cuts such an instruction, as the family's own code does. ValueError as of it.
        """
        ...

    def encode_condition(self, source: Image.Image, instruction: str) -> Condition:
        """One sample's condition, for the source image in its working size. The instruction "" gives its null condition."""
        ...

    def decode(self, latents: Tensor) -> list[Image.Image]:
        """RGB images of latents [n, channels, rows, columns]."""
        ...


class EditingModel(Protocol):
    """The trained half; a `torch.nn.Module`. Call the module, not `forward`, so that DDP and FSDP take part."""

    block_lists: tuple[str, ...]
    """Names of its `nn.ModuleList`s of blocks: units of sharding, activation checkpointing and compilation. Every linear layer in
    them gets a LoRA adapter."""
    connector_name: str | None
    """Name of the part between encoder and blocks that may be trained in full beside adapters."""
    fused_projections: tuple[tuple[str, ...], ...]
    """Linear layers of a block, by the ends of their names, that the family's released files fuse to one layer with one adapter."""

    idle_layers: tuple[str, ...]
    """Names of parts whose results reach no output. They get no gradient, for which DDP would wait, so they do not learn."""
    last_time: float | None
    """Time of the last Euler step before 0, to which sampling stretches its times; None: as the shift leaves it."""
    rescales_guidance: bool
    """Whether sampling gives a guided velocity, token by token, the norm of the conditioned one."""

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        """One batch of several samples' conditions, padded as the family pads."""
        ...

    def resolution_shift(self, rows: int, columns: int) -> float:
        """Shift s of the time that this family samples with, for a target latent of this size; see `rectified_flow.shift_time`."""
        ...

    def forward(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        """Velocity [n, channels, rows, columns].

        noisy: [n, channels, rows, columns]; reference: source latents [n, channels, rows', columns']; time: [n], float32 in [0, 1];
        condition: of `collate`.
        """
        ...

    def __call__(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        """As `forward`."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """As of every `nn.Module`."""
        ...

    def get_submodule(self, target: str) -> nn.Module:
        """As of every `nn.Module`."""
        ...


def longer(tokens: int, most: int) -> str:
    """For `Encoders.unread`: empty where the tokens are not more than the most that is read."""
    return f"instruction and image have {tokens} tokens, and the editor reads {most}" if tokens > most else ""


def padded(tensors: Sequence[Tensor], length: int) -> tuple[Tensor, Tensor]:
    """Sequences [length_i, width] as one [n, length, width], zeros behind the shorter ones, and their mask [n, length] (true: present)."""
    batch = tensors[0].new_zeros(len(tensors), length, *tensors[0].shape[1:])
    mask = torch.zeros(len(tensors), length, dtype=torch.bool, device=batch.device)
    for row, tensor in enumerate(tensors):
        batch[row, : len(tensor)], mask[row, : len(tensor)] = tensor, True
    return batch, mask
