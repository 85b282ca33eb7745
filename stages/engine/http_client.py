"""Requests to an HTTP server, asked again while an answer may still come: back-off, Retry-After, a deadline, a bound of the answer's size.

``urllib3.util.Retry`` parses Retry-After here and does nothing else: it does not see an answer that ends half-way or is not what was
asked for, since it is done when the headers are there; its time-out is of each read, so a server that drips bytes holds a request for
ever; its pauses are of one thread.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, InvalidHeader, ReadTimeoutError
from urllib3.util import Retry

from stages.engine.pace import LONGEST_PAUSE, Pace

Answer = TypeVar("Answer")
CONNECT_SECONDS = 10
SILENCES = 2
"""A request that is not answered in time this often is given up."""
_GZIP = 16 + zlib.MAX_WBITS
SHOWN = 300
"""Characters of a server's message that are shown."""


class Unanswered(Exception):
    """No usable answer in all tries."""


@dataclass(frozen=True)
class Patience:
    """``tries`` of one request, the first two ``pause_seconds`` apart, each pause twice the one before; ``seconds``: for a whole answer."""

    tries: int
    pause_seconds: float
    seconds: float


@dataclass(frozen=True)
class Reply:
    """A whole answer, of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 409, 425, 429) or self.status >= 500

    def json(self) -> dict[str, Any] | None:
        """The object that it is; None where it is none, or not all of it."""
        try:
            answer = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    def problem(self) -> str:
        """What is wrong with it, for a reader: in the layouts of FastAPI and of OpenAI, else how the body begins."""
        if self.status == 200:
            return "an answer that is no JSON, not all of it, or not what was asked for"
        answer = self.json() or {}
        error = answer.get("error")
        text = answer.get("detail") or (error.get("message") if isinstance(error, dict) else "") or self.body.decode(errors="replace")
        return f"HTTP {self.status}: {' '.join(str(text).split())[:SHOWN] or 'no message'}"

    def retry_after(self) -> float:
        """Seconds for which the server asks not to be asked, at most a minute; 0 where it does not say."""
        given = self.headers.get("Retry-After", "")
        try:
            return min(max(0.0, float(given)), LONGEST_PAUSE)
        except ValueError:
            pass
        try:
            return Retry(retry_after_max=int(LONGEST_PAUSE)).parse_retry_after(given)
        except (InvalidHeader, ValueError, OverflowError):  # the last two for a date that no calendar has
            return 0.0


class HttpClient:
    """Requests to the server at ``base_url``, also from several threads, at most ``connections`` of them.

    ``key``: sent as a bearer token. ``largest_answer``: in bytes. ``per_minute``: requests that may begin; None: any number. A pause that
    the server asks for holds for all threads; the growing one between two tries holds for that request alone.
    """

    def __init__(
        self, base_url: str, key: str | None, patience: Patience, *, connections: int, largest_answer: int, per_minute: int | None = None
    ) -> None:
        self.base_url, self.patience, self.largest_answer = base_url.rstrip("/"), patience, largest_answer
        self._pace = Pace(per_minute)
        self._session = requests.Session()
        self._session.auth = _Key(key)
        self._session.headers["Accept-Encoding"] = "gzip"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(pool_maxsize=connections))

    def ask(
        self, method: str, path: str, understood: Callable[[Reply], Answer | None], *, seconds: float | None = None, **form: Any
    ) -> Answer:
        """What ``understood`` makes of the reply. Where that is None the server is asked again.

        ``seconds``: in place of the patience's; ``form``: ``json``, ``data`` or ``files`` of the request, as `requests` takes them.
        Raises ``Unanswered``, and what ``understood`` raises.
        """
        seconds = seconds or self.patience.seconds
        pause, silences = self.patience.pause_seconds, 0
        for left in reversed(range(self.patience.tries)):
            try:
                reply = self.once(method, path, seconds=seconds, **form)
            except requests.RequestException as error:
                problem = _broken(error, seconds)
                silences += isinstance(error, requests.Timeout)
                if silences == SILENCES:
                    raise Unanswered(f"{method} {self.base_url}{path}, {silences} times: {problem}") from None
            else:
                answer = understood(reply)
                if answer is not None:
                    return answer
                problem = reply.problem()
                self._pace.pause(reply.retry_after())
            if left:
                time.sleep(min(pause, LONGEST_PAUSE))
                pause *= 2
        raise Unanswered(f"{method} {self.base_url}{path}, tried {self.patience.tries} times: {problem}")

    def once(self, method: str, path: str, *, seconds: float, **form: Any) -> Reply:
        """One try. ``seconds`` are for the headers, and for all until the body's end; twice as many where the server falls silent in it.

        Raises ``requests.RequestException`` for a connection that breaks or is silent, and ``Unanswered`` for an answer that is too large.
        """
        self._pace.wait()
        deadline = time.monotonic() + seconds
        body = bytearray()
        try:
            with self._session.request(
                method, self.base_url + path, timeout=(min(CONNECT_SECONDS, seconds), seconds), stream=True, allow_redirects=False, **form
            ) as answer:
                unpacked = zlib.decompressobj(_GZIP) if answer.headers.get("Content-Encoding", "").lower() == "gzip" else None
                while part := answer.raw.read1(1 << 20, decode_content=False):
                    body += unpacked.decompress(part, self.largest_answer + 1 - len(body)) if unpacked else part
                    if time.monotonic() > deadline:
                        raise requests.ReadTimeout
                    if len(body) > self.largest_answer:
                        raise Unanswered(f"{method} {self.base_url}{path}: an answer of more than {self.largest_answer:,} bytes")
                if unpacked and not unpacked.eof:  # urllib3 takes it for whole
                    raise requests.ConnectionError("a compressed answer that is cut off")
                return Reply(answer.status_code, answer.headers, bytes(body))
        except ReadTimeoutError as error:
            raise requests.ReadTimeout from error
        except (HTTPError, zlib.error) as error:
            raise requests.ConnectionError(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _Punctual(HTTPConnection):
    """The time-out of a read is begun anew by each byte; this connection is cut when the headers are not whole in that time."""

    def getresponse(self) -> HTTPResponse:
        connected, late = self.sock, threading.Event()
        assert connected is not None and self.timeout is not None, "a request was sent, with a time-out"

        def cut() -> None:
            late.set()
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

        watch = threading.Timer(self.timeout, cut)
        watch.daemon = True
        watch.start()
        try:
            answer = super().getresponse()
        except (HTTPException, OSError):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            watch.cancel()
        if late.is_set():  # cut headers pass for whole ones
            raise TimeoutError
        return answer


class _PunctualTls(_Punctual, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Punctual  # ty: ignore[invalid-assignment]


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _PunctualTls  # ty: ignore[invalid-assignment]


_POOLS: dict[str, type[HTTPConnectionPool | HTTPSConnectionPool]] = {"http": _Pool, "https": _TlsPool}


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS  # ty: ignore[invalid-assignment]

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _Key(AuthBase):
    """The API key as a bearer token. A session without its own authentication would take one from the user's netrc file."""

    def __init__(self, key: str | None) -> None:
        self.key = key

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.key:
            r.headers["Authorization"] = f"Bearer {self.key}"
        return r


def _broken(error: requests.RequestException, seconds: float) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer in {seconds:g} seconds"
    return f"a broken connection ({type(error).__name__})"
