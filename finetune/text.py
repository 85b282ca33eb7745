"""A small instruction encoder: word embeddings plus learned position vectors, trained with the editor.

In: instructions. Out: one vector per word [n, words, dim], padded with a learned vector, and their mean over real words.
FLUX gives every text token the same rotary position (0, 0, 0), so without the added position vectors the transformer could
not tell "make the red circle blue" from "make the blue circle red". Function words carry no such difference and are dropped:
a shorter sequence is a cheaper step. A large editor has a language model instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

FUNCTION_WORDS = frozenset({"a", "an", "at", "into", "the", "to"})
PADDING, UNKNOWN = "<pad>", "<unk>"
_INITIAL_SCALE = 0.7  # embeddings near unit scale: FLUX's context projection has torch's default (small) weights


def content_words(instruction: str) -> list[str]:
    """Lower-case words and numbers of an instruction, without function words."""
    return [word for word in re.findall(r"\w+", instruction.lower()) if word not in FUNCTION_WORDS]


@dataclass(frozen=True)
class Vocabulary:
    """The known words (sorted; first padding and unknown) and the most content words an instruction may have."""

    words: tuple[str, ...]
    max_words: int

    @classmethod
    def build(cls, instructions: Sequence[str]) -> Self:
        """Vocabulary of all words in the instructions; `max_words` is the longest instruction's number."""
        lists = [content_words(instruction) for instruction in instructions]
        if not any(lists):
            raise ValueError("no instruction contains a word to learn from; give the instructions the editor will be trained on")
        known = sorted({word for words in lists for word in words})
        return cls((PADDING, UNKNOWN, *known), max(len(words) for words in lists))

    def encode(self, instructions: Sequence[str]) -> Tensor:
        """Word numbers [n, max_words], 0 is padding; unknown words become `<unk>`.

        ValueError for an instruction without content words or with more than `max_words` of them.
        """
        number = {word: index for index, word in enumerate(self.words)}
        ids = torch.zeros(len(instructions), self.max_words, dtype=torch.long)
        for row, instruction in enumerate(instructions):
            words = content_words(instruction)
            if not 1 <= len(words) <= self.max_words:
                raise ValueError(
                    f"instruction {instruction!r} has {len(words)} content words, "
                    f"this editor takes 1 to {self.max_words}; shorten it or build the editor with longer instructions"
                )
            ids[row, : len(words)] = torch.tensor([number.get(word, 1) for word in words])
        return ids


class TextEncoder(nn.Module):
    """Embeddings [vocabulary, dim] and position vectors [max_words, dim]."""

    def __init__(self, vocabulary: Vocabulary, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(vocabulary.words), dim)
        self.position = nn.Parameter(torch.empty(vocabulary.max_words, dim))
        nn.init.normal_(self.embedding.weight, std=_INITIAL_SCALE)
        nn.init.normal_(self.position, std=_INITIAL_SCALE)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [n, words, dim] and the mean of the real words [n, dim] for word numbers [n, words]."""
        tokens = self.embedding(ids) + self.position
        real = (ids != 0).unsqueeze(-1).to(tokens.dtype)
        return tokens, (tokens * real).sum(1) / real.sum(1)
