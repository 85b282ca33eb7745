"""A client of ``/v1/images/edits``: one form in, one image out, with patience for a server that is busy or restarts.

The form and the other endpoints are those of vLLM-Omni 0.30 and SGLang 0.5.23, read in their sources: both take multipart fields, and drop
fields that they do not know.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, ReadTimeoutError

CONNECT_SECONDS = 10
QUESTION_SECONDS = 30
"""Time-out of a question about the server itself."""
LONGEST_PAUSE = 60.0
SILENCES = 2
"""A request that is not answered in time this often is given up."""
LARGEST_ANSWER = 1 << 30
BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which the same request may succeed."""
WRONG_SERVER = {401, 403, 404, 405}
"""Answers that every request would get."""


class Refused(Exception):
    """The server does not make this edit."""


class Unanswered(Exception):
    """No usable answer in all tries."""


@dataclass(frozen=True)
class Served:
    """What a server says of itself. ``engine``: vllm, sglang or what else owns its model; ``version``: empty where it does not tell."""

    engine: str
    version: str
    models: tuple[str, ...]


@dataclass(frozen=True)
class Patience:
    """``tries`` of one request, the first two ``pause_seconds`` apart, each pause twice the one before; ``seconds``: time-out of a try."""

    tries: int
    pause_seconds: float
    seconds: float


class _Key(AuthBase):
    """The API key as a bearer token. A session without its own authentication would take one from the user's netrc file."""

    def __init__(self, key: str | None) -> None:
        self.key = key

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.key:
            r.headers["Authorization"] = f"Bearer {self.key}"
        return r


class Client:
    """Requests to the server at ``base_url``, also from several threads."""

    def __init__(self, base_url: str, key: str | None, patience: Patience, connections: int) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.patience = patience
        self._session = requests.Session()
        self._session.auth = _Key(key)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=connections))

    def served(self) -> Served:
        """Raises ``ValueError`` if the server does not tell what it serves."""
        try:
            cards = self._question("/v1/models")["data"]
            engine = str(cards[0].get("owned_by", ""))
            models = tuple(str(card["id"]) for card in cards)
        except (Refused, Unanswered, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"the server at {self.base_url} does not tell which model it serves ({error})") from error
        return Served(engine, self._version(engine), models)

    def edit(self, image: bytes, fields: Mapping[str, str]) -> bytes:
        """The encoded edit of a PNG. Raises ``Refused``, ``Unanswered``, or ``ValueError`` if no edit will ever come from this server."""
        answer = self._patiently("POST", "/v1/images/edits", self.patience.seconds, fields, {"image": ("image.png", image, "image/png")})
        images = answer.get("data")
        if not isinstance(images, list) or len(images) != 1 or not isinstance(images[0], dict):
            raise Refused(f"the answer has {len(images) if isinstance(images, list) else 'no'} images, not one")
        try:
            return base64.b64decode(images[0].get("b64_json") or "", validate=True)
        except (binascii.Error, TypeError) as error:
            raise Refused(f"the answer's b64_json is no base64: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _version(self, engine: str) -> str:
        try:
            return str(self._question({"vllm": "/version", "sglang": "/server_info"}[engine])["version"])
        except (KeyError, Refused, Unanswered, ValueError):
            return ""

    def _question(self, path: str) -> dict[str, Any]:
        return self._patiently("GET", path, min(QUESTION_SECONDS, self.patience.seconds), None, None)

    def _patiently(self, method: str, path: str, seconds: float, fields: Any, files: Any) -> dict[str, Any]:
        """The answer's JSON, asked for again while there may still come one."""
        pause, silences = self.patience.pause_seconds, 0
        for left in reversed(range(self.patience.tries)):
            wait = 0.0
            try:
                status, headers, body = self._once(method, path, seconds, fields, files)
            except (requests.Timeout, ReadTimeoutError):
                problem = f"no answer in {seconds:g} seconds"
                silences += 1
                if silences == SILENCES:
                    raise Unanswered(f"{method} {self.base_url}{path}, {silences} times: {problem}") from None
            except (requests.ConnectionError, HTTPError) as error:
                problem = f"a broken connection ({type(error).__name__})"
            else:
                if status == 200 and (answer := _object(body)) is not None:
                    return answer
                problem = "an answer that is no JSON, or not all of it" if status == 200 else f"{status}: {_message(body)}"
                if status in WRONG_SERVER:
                    hint = "; settings.key_variable names the variable that has its key" if status in (401, 403) else ""
                    raise ValueError(f"{method} {self.base_url}{path} is answered with {problem}{hint}")
                if status != 200 and status not in BUSY:
                    raise Refused(problem)
                wait = _seconds(headers.get("Retry-After", ""))
            if left:
                time.sleep(min(max(pause, wait), LONGEST_PAUSE))
                pause *= 2
        raise Unanswered(f"{method} {self.base_url}{path}, tried {self.patience.tries} times: {problem}")

    def _once(self, method: str, path: str, seconds: float, fields: Any, files: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. The time-out is of the whole answer, not of each of its parts."""
        deadline = time.monotonic() + seconds
        url = self.base_url + path
        with self._session.request(
            method, url, data=fields, files=files, timeout=(CONNECT_SECONDS, seconds), stream=True, allow_redirects=False
        ) as answer:
            body = bytearray()
            while part := answer.raw.read1(1 << 20, decode_content=True):
                body += part
                if time.monotonic() > deadline:
                    raise requests.Timeout
                if len(body) > LARGEST_ANSWER:
                    raise Refused(f"an answer of more than {LARGEST_ANSWER:,} bytes")
            return answer.status_code, answer.headers, bytes(body)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _message(body: bytes) -> str:
    """What an error's JSON says, in the layouts of FastAPI and of OpenAI; else how the body begins."""
    answer = _object(body) or {}
    error = answer.get("error")
    text = answer.get("detail") or (error.get("message") if isinstance(error, dict) else "") or body.decode(errors="replace")
    return " ".join(str(text).split())[:300] or "no message"


def _seconds(retry_after: str) -> float:
    """Of a Retry-After header; a date counts as nothing."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 0.0
