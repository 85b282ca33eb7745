"""A vision-language model behind any OpenAI-style chat-completions endpoint: a served open model, or a provider's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from stages.engine.ids import settings_hash
from stages.evaluate_editor.judges.judge import JudgeEdits
from stages.evaluate_editor.judges.vlm import VlmJudge

OFFICIAL_BACKBONE = "Qwen/Qwen2.5-VL-72B-Instruct-AWQ"
"""Open weights; the second judge of GEdit-Bench's own script, and the only one of its two that stays."""


class EndpointJudge(VlmJudge):
    """Two calls per edit, at temperature 0. The default is an open model that you serve yourself, because its weights can be pinned:
    gpt-4.1, the judge of most published figures, leaves OpenAI's API on 2027-01-14.
    """

    name: Literal["endpoint"]  # ty: ignore[incompatible-mutable-override]
    base_url: str = Field("http://localhost:8000/v1", description="Address of the API, without /chat/completions")
    model: str = Field(OFFICIAL_BACKBONE, description="Model that is asked")
    reply_model: str | None = Field(None, description="Model that replies name, where it is not the one that is asked; default: model")
    key_variable: str | None = Field(None, description="Environment variable with the API key; default: none, as for a server of your own")
    temperature: float | None = Field(0.0, ge=0, description="Sampling temperature; null: not sent, for models that refuse it")
    seed: int | None = Field(0, description="Seed that is sent; null: not sent")
    max_tokens: int | None = Field(1400, gt=0, description="Tokens of a reply; null: not sent")
    extra: dict[str, Any] = Field({}, description="Further fields of every request, e.g. {reasoning_effort: low}")
    attempts: int = Field(3, ge=1, description="Calls per question while replies have no scores")
    concurrency: int = Field(8, ge=1, description="Calls at the same time")
    per_minute: int | None = Field(None, ge=1, description="Calls per minute at most; default: no limit of ours")
    timeout: float = Field(180.0, gt=0, description="Seconds for a whole reply; after the second time-out a call is given up")
    patience: int = Field(6, ge=0, description="How often a call is made again after a failure that may pass: 429, 5xx, time-outs")
    backoff: float = Field(2.0, gt=0, description="Seconds before the first of these; doubles each time, at most 60")
    prompt_price: float | None = Field(None, ge=0, description="US$ per million prompt tokens, for the cost meter")
    completion_price: float | None = Field(None, ge=0, description="US$ per million completion tokens, for the cost meter")
    most_workers: ClassVar[int | None] = 1
    units_at_once: ClassVar[int] = 2

    @property
    def label(self) -> str:
        """The model."""
        return self.model

    @property
    def revision(self) -> str:
        """The model, and a hash of the questions and of what changes a reply."""
        return f"{self.model} {settings_hash(self.asked(), self.attempts)[:12]}"

    @property
    def variables(self) -> tuple[str, ...]:
        """That of the key."""
        return () if self.key_variable is None else (self.key_variable,)

    def check(self) -> None:
        """The key must be there."""
        self._key()

    def open(self, replies: Path) -> JudgeEdits:
        """Connect. Raises ``ValueError`` where nothing answers."""
        from stages.engine.http_client import Patience
        from stages.evaluate_editor.vlm.endpoint import ChatClient, Endpoint
        from stages.evaluate_editor.vlm.judging import VlmJudging
        from stages.evaluate_editor.vlm.reply_cache import ReplyCache

        client = ChatClient(
            Endpoint(
                base_url=self.base_url.rstrip("/"),
                model=self.model,
                key=self._key(),
                body=self._body(),
                reply_model=self.reply_model or self.model,
                patience=Patience(self.patience + 1, self.backoff, self.timeout),
                concurrency=self.concurrency,
                per_minute=self.per_minute,
            )
        )
        client.check()
        cache = ReplyCache(replies, self.asked())
        return VlmJudging(client, cache, self.asks, attempts=self.attempts, concurrency=self.concurrency, image_format=self.image_format)

    def asked(self) -> dict[str, Any]:
        """With the model and the fields of every request."""
        return super().asked() | {"model": self.model, "body": self._body()}

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US$; None where the configuration names no prices."""
        if self.prompt_price is None or self.completion_price is None:
            return None
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6

    def _key(self) -> str:
        if self.key_variable is None:
            return ""
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ValueError(
                f"evaluate_editor.judge: the environment variable {self.key_variable} has no API key for {self.base_url}; set it, or name "
                "another in key_variable"
            )
        return key

    def _body(self) -> dict[str, Any]:
        given = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.max_tokens}
        return {name: value for name, value in given.items() if value is not None} | self.extra
