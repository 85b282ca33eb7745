"""A model that answers about pictures, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Answer:
    """Of one call. ``status``: ok where the model said something, which may still have no scores; else why it did not.

    ``text``: what it said, or the server's error. ``model``: the name that the reply carries, which names the snapshot where the server
    tells it.
    """

    status: Literal["ok", "refused", "api_error"]
    text: str
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Chat(Protocol):
    """A model that is ready to answer; several threads may ask at the same time."""

    def ask(self, images: Sequence[bytes], text: str) -> Answer:
        """One call with encoded pictures and a text. Raises ``ValueError`` where no further call can succeed."""
        ...
