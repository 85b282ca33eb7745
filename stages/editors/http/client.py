"""The form of ``/v1/images/edits``: one form in, one image out.

The form and the other endpoints are those of vLLM-Omni 0.30 and SGLang 0.5.23, read in their sources: both take multipart fields, and drop
fields that they do not know.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from stages.engine.http_client import HttpClient, Patience, Reply, Unanswered

QUESTION_SECONDS = 30
"""Time-out of a question about the server itself."""
LARGEST_ANSWER = 1 << 30
"""Bytes."""
WRONG_SERVER = {401, 403, 404, 405}
"""Answers that every request would get."""


class Refused(Exception):
    """The server does not make this edit."""


@dataclass(frozen=True)
class Served:
    """What a server says of itself. ``engine``: vllm, sglang or what else owns its model; ``version``: empty where it does not tell."""

    engine: str
    version: str
    models: tuple[str, ...]


class Client:
    """Requests to the server at ``base_url``, also from several threads."""

    def __init__(self, base_url: str, key: str | None, patience: Patience, connections: int) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self._http = HttpClient(self.base_url, key, patience, connections=connections, largest_answer=LARGEST_ANSWER)
        self.close = self._http.close

    def served(self) -> Served:
        """Raises ``ValueError`` if the server does not tell what it serves."""
        try:
            cards = self._question("/v1/models")["data"]
            engine = str(cards[0].get("owned_by", ""))
            models = tuple(str(card["id"]) for card in cards)
        except (Refused, Unanswered, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the server at {self.base_url} does not tell which model it serves ({error}); start it, or correct settings.base_url"
            ) from error
        return Served(engine, self._version(engine), models)

    def edit(self, image: bytes, fields: Mapping[str, str]) -> bytes:
        """The encoded edit of a PNG. Raises ``Refused``, ``Unanswered``, or ``ValueError`` if no edit will ever come from this server."""
        path, files = "/v1/images/edits", {"image": ("image.png", image, "image/png")}
        answer = self._http.ask("POST", path, partial(self._understood, f"POST {self.base_url}{path}"), data=fields, files=files)
        images = answer.get("data")
        if not isinstance(images, list) or len(images) != 1 or not isinstance(images[0], dict):
            raise Refused(f"the answer has {len(images) if isinstance(images, list) else 'no'} images, not one")
        try:
            return base64.b64decode(images[0].get("b64_json") or "", validate=True)
        except (binascii.Error, TypeError) as error:
            raise Refused(f"the answer's b64_json is no base64: {error}") from error

    def _version(self, engine: str) -> str:
        try:
            return str(self._question({"vllm": "/version", "sglang": "/server_info"}[engine])["version"])
        except (KeyError, Refused, Unanswered, ValueError):
            return ""

    def _question(self, path: str) -> dict[str, Any]:
        seconds = min(QUESTION_SECONDS, self._http.patience.seconds)
        return self._http.ask("GET", path, partial(self._understood, f"GET {self.base_url}{path}"), seconds=seconds)

    def _understood(self, asked: str, reply: Reply) -> dict[str, Any] | None:
        """The answer's JSON; None where it is to be asked for again."""
        if reply.status == 200:
            return reply.json()
        if reply.status in WRONG_SERVER:
            hint = "; settings.key_variable names the variable that has its key" if reply.status in (401, 403) else ""
            raise ValueError(f"{asked} is answered with {reply.problem()}{hint}")
        if not reply.may_pass:
            raise Refused(reply.problem())
        return None
