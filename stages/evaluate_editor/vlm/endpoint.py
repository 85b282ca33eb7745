"""Client of an OpenAI-style chat-completions endpoint: back-off, rate limit, time-outs, and what each kind of failure means.

| the server | becomes |
| --- | --- |
| 408, 409, 429, 5xx, no connection, time-out, half an answer, no JSON | asked again, later each time; api_error when patience ends |
| content filter, as an error or as finish_reason; a ``refusal`` | refused |
| any other 4xx | api_error |
| 401, 403, 404, spent quota, a reply by another model than asked | ``ValueError``: no further call can succeed |
| many failures in succession without one answer | ``ValueError`` |
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from stages.evaluate_editor.vlm.chat import Answer
from stages.evaluate_editor.vlm.pace import Pace
from stages.evaluate_editor.vlm.pictures import data_url

AGAIN = frozenset({408, 409, 429})
FATAL = frozenset({401, 403, 404})
FILTERS = ("content_filter", "content_policy", "responsibleaipolicy", "moderation", "safety")
"""Parts of error codes by which providers name their content filters."""
QUOTA = ("insufficient_quota", "billing_hard_limit_reached")
SHOWN = 300
FAILURES_IN_SUCCESSION = 20


@dataclass(frozen=True)
class Endpoint:
    """Where the model is served and how it is asked. ``body``: fields of every request; ``reply_model``: the name that replies carry.

    Times are in seconds. ``patience``: how often a call is made again after a failure that may pass.
    """

    base_url: str
    model: str
    key: str
    body: Mapping[str, Any]
    reply_model: str
    timeout: float
    patience: int
    backoff: float
    per_minute: int | None


class ChatClient:
    """Asks an endpoint; threads may share it, and its rate limit and pauses hold for all of them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.pace = Pace(endpoint.per_minute)
        self._lock = threading.Lock()
        self._failures = 0
        self._local = threading.local()

    def check(self) -> None:
        """Raise ``ValueError`` where nothing answers at the URL."""
        try:
            self._session().get(f"{self.endpoint.base_url}/models", timeout=self.endpoint.timeout)
        except requests.RequestException as error:
            raise ValueError(
                f"no judge answers at {self.endpoint.base_url} ({_reason(error)}); start its server and run the same command again: "
                "finished edits and verdicts are kept"
            ) from None

    def ask(self, images: Sequence[bytes], text: str) -> Answer:
        """One call, made again after failures that may pass."""
        content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
        content.append({"type": "text", "text": text})
        body = {"model": self.endpoint.model, "messages": [{"role": "user", "content": content}], **self.endpoint.body}
        said = ""
        for attempt in range(self.endpoint.patience + 1):
            self.pace.wait()
            try:
                reply = self._session().post(f"{self.endpoint.base_url}/chat/completions", json=body, timeout=self.endpoint.timeout)
            except requests.RequestException as error:
                said, wait = _reason(error), None
            else:
                answer = self._answer(reply)
                if answer is not None:
                    return self._counted(answer)
                said, wait = f"HTTP {reply.status_code}: {reply.text[:SHOWN]}", _retry_after(reply)
            if attempt < self.endpoint.patience:
                self.pace.pause(wait if wait is not None else _backoff(self.endpoint.backoff, attempt))
        return self._counted(Answer("api_error", said))

    def _answer(self, reply: requests.Response) -> Answer | None:
        """What a reply means; None where the call is to be made again."""
        code, error = reply.status_code, _error(reply)
        if code in AGAIN or code >= 500:
            if any(word in error for word in QUOTA):
                raise ValueError(f"the judge's account at {self.endpoint.base_url} has no quota left; finished verdicts are kept")
            return None
        if code >= 400:
            if any(word in error for word in FILTERS):
                return Answer("refused", f"content filter: {reply.text[:SHOWN]}")
            if code in FATAL:
                raise ValueError(
                    f"the judge at {self.endpoint.base_url} answers {code} for the model {self.endpoint.model}: {reply.text[:SHOWN]}; "
                    "correct the key, the URL or the model's name"
                )
            return Answer("api_error", f"HTTP {code}: {reply.text[:SHOWN]}")
        try:
            return self._completion(reply.json())
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as wrong:
            if isinstance(wrong, OtherModel):
                raise
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

    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.auth = self._authorise
        return self._local.session

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """With the key alone: requests would take what a .netrc file has for the host."""
        if self.endpoint.key:
            request.headers["Authorization"] = f"Bearer {self.endpoint.key}"
        return request


class OtherModel(ValueError):
    """A reply by another model than asked."""


def is_snapshot_of(replied: str, asked: str) -> bool:
    """Whether a reply's model is the one that was asked for: the same name, or that name with a date such as ``-2025-04-14``."""
    rest = replied.removeprefix(asked)
    return replied == asked or (rest != replied and rest.startswith("-") and rest.replace("-", "").isdigit())


def _error(reply: requests.Response) -> str:
    """Code, type and message of an error in lower case; empty for no error."""
    if reply.status_code < 400:
        return ""
    try:
        found = reply.json()
        found = found.get("error", found) if isinstance(found, dict) else found
        return json.dumps(found).lower()
    except ValueError:
        return ""


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:SHOWN]}"


def _retry_after(reply: requests.Response) -> float | None:
    try:
        return max(0.0, float(reply.headers.get("Retry-After", "")))
    except ValueError:
        return None


def _backoff(first: float, attempt: int) -> float:
    """Doubles with each attempt; up to as much again at random, so that threads do not come back together."""
    return first * 2**attempt * (1 + random.random())
