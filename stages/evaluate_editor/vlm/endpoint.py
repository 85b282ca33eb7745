"""Client of an OpenAI-style chat-completions endpoint: what each kind of reply means. Patience is `stages.engine.http_client`'s.

| the server | becomes |
| --- | --- |
| 408, 409, 425, 429, 5xx, no connection, time-out, half an answer, no JSON | asked again, later each time; api_error in the end |
| content filter, as an error or as finish_reason; a ``refusal`` | refused |
| any other 3xx and 4xx, an answer without end | api_error |
| 401, 403, 404, spent quota, a reply by another model than asked | ``ValueError``: no further call can succeed |
| many failures in succession without one answer | ``ValueError`` |
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from stages.engine.http_client import SHOWN, HttpClient, Patience, Reply, Unanswered
from stages.evaluate_editor.vlm.chat import Answer
from stages.evaluate_editor.vlm.pictures import data_url

FATAL = frozenset({401, 403, 404})
FILTERS = ("content_filter", "content_policy", "responsibleaipolicy", "moderation", "safety")
"""Parts of error codes by which providers name their content filters."""
QUOTA = ("insufficient_quota", "billing_hard_limit_reached")
FAILURES_IN_SUCCESSION = 20
LARGEST_ANSWER = 1 << 24
"""Bytes."""


@dataclass(frozen=True)
class Endpoint:
    """Where the model is served and how it is asked. ``body``: fields of every request; ``reply_model``: the name that replies carry."""

    base_url: str
    model: str
    key: str
    body: Mapping[str, Any]
    reply_model: str
    patience: Patience
    concurrency: int
    per_minute: int | None


class ChatClient:
    """Asks an endpoint; threads may share it, and its rate limit and pauses hold for all of them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._http = HttpClient(
            endpoint.base_url,
            endpoint.key,
            endpoint.patience,
            connections=endpoint.concurrency,
            largest_answer=LARGEST_ANSWER,
            per_minute=endpoint.per_minute,
        )
        self._lock = threading.Lock()
        self._failures = 0

    def check(self) -> None:
        """Raise ``ValueError`` where nothing answers at the URL."""
        try:
            self._http.once("GET", "/models", seconds=self.endpoint.patience.seconds)
        except (requests.RequestException, Unanswered) as error:
            raise ValueError(
                f"no judge answers at {self.endpoint.base_url} ({type(error).__name__}: {str(error)[:SHOWN]}); start its server and run "
                "the same command again: finished edits and verdicts are kept"
            ) from None

    def ask(self, images: Sequence[bytes], text: str) -> Answer:
        """One call, made again after failures that may pass."""
        content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
        content.append({"type": "text", "text": text})
        body = {"model": self.endpoint.model, "messages": [{"role": "user", "content": content}], **self.endpoint.body}
        try:
            return self._counted(self._http.ask("POST", "/chat/completions", self._answer, json=body))
        except Unanswered as error:
            return self._counted(Answer("api_error", str(error)))

    def _answer(self, reply: Reply) -> Answer | None:
        """What a reply means; None where the call is to be made again."""
        error = _error(reply)
        if reply.may_pass:
            if any(word in error for word in QUOTA):
                raise ValueError(f"the judge's account at {self.endpoint.base_url} has no quota left; finished verdicts are kept")
            return None
        if reply.status >= 300:
            if any(word in error for word in FILTERS):
                return Answer("refused", f"content filter: {reply.problem()}")
            if reply.status in FATAL:
                raise ValueError(
                    f"the judge at {self.endpoint.base_url} answers {reply.problem()}, asked for the model {self.endpoint.model}; "
                    "correct the key, the URL or the model's name"
                )
            return Answer("api_error", reply.problem())
        try:
            return self._completion(reply.json() or {})
        except OtherModel:
            raise
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None

    def _completion(self, found: dict[str, Any]) -> Answer:
        if "choices" not in found and "error" in found:
            raise ValueError("an error with status 200")
        model = str(found.get("model") or "")
        if model and not is_snapshot_of(model, self.endpoint.reply_model):
            raise OtherModel(
                f"the judge at {self.endpoint.base_url} was asked for {self.endpoint.reply_model} and {model} replied; two models are two "
                "judges: correct evaluate_editor.judge.model, or name the model of the replies in reply_model"
            )
        choice = found["choices"][0]
        message, usage = choice["message"], found.get("usage") or {}
        tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
        if message.get("refusal") or choice.get("finish_reason") == "content_filter":
            return Answer("refused", str(message.get("refusal") or "content filter"), model, *tokens)
        text = message.get("content") or ""
        if isinstance(text, list):
            text = "".join(part.get("text", "") for part in text)
        return Answer("ok", str(text), model, *tokens)

    def _counted(self, answer: Answer) -> Answer:
        with self._lock:
            self._failures = self._failures + 1 if answer.status == "api_error" else 0
            failures = self._failures
        if failures >= FAILURES_IN_SUCCESSION:
            raise ValueError(
                f"{failures} calls of the judge at {self.endpoint.base_url} failed in succession, the last with: {answer.text[:SHOWN]}; "
                "run the same command again when it answers: finished verdicts and replies are kept"
            )
        return answer


class OtherModel(ValueError):
    """A reply by another model than asked."""


def is_snapshot_of(replied: str, asked: str) -> bool:
    """Whether a reply's model is the one that was asked for: the same name, or that name with a date such as ``-2025-04-14``."""
    rest = replied.removeprefix(asked)
    return replied == asked or (rest != replied and rest.startswith("-") and rest.replace("-", "").isdigit())


def _error(reply: Reply) -> str:
    """Code, type and message of an error in lower case; empty for no error."""
    found = reply.json() if reply.status >= 300 else None
    return json.dumps(found.get("error", found)).lower() if found else ""
