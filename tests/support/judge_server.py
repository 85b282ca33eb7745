"""A chat-completions server that answers as it is told, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "judge-1"
Answering = Callable[[dict[str, Any], int], "Answered"]
"""From a request and how many came before it with the same body."""


class Answered:
    """What the server sends: a status, a body, and how it goes wrong."""

    def __init__(
        self,
        body: Any,
        status: int = 200,
        *,
        headers: dict[str, str] | None = None,
        half: bool = False,
        late: float = 0.0,
        drip: bool = False,
    ) -> None:
        self.data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers = status, headers or {}
        self.half, self.late, self.drip = half, late, drip


def said(text: Any, *, model: str = MODEL, finish: str = "stop", **message: Any) -> Answered:
    """A completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    return Answered({"model": model, "choices": [choice], "usage": {"prompt_tokens": 900, "completion_tokens": 30}})


def scored(a: float, b: float, **more: Any) -> Answered:
    """A completion with scores."""
    return said(json.dumps({"reasoning": "as asked", "score": [a, b]}), **more)


class JudgeServer:
    """``url``: its base URL; ``requests``: bodies of the calls; ``keys``: their Authorization headers."""

    def __init__(self, answering: Answering, port: int = 0) -> None:
        self.answering = answering
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(Answered({"data": [{"id": MODEL}]}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    before = sum(earlier == body for earlier in server.requests)
                    server.requests.append(body)
                    server.keys.append(self.headers.get("Authorization", ""))
                self._send(server.answering(body, before))

            def _send(self, answer: Answered) -> None:
                time.sleep(answer.late)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.data)))
                if answer.half:
                    self.close_connection = True
                self.end_headers()
                with suppress(OSError):  # the client may have gone
                    for byte in answer.data if answer.drip else b"":
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.1)
                    if not answer.drip:
                        self.wfile.write(answer.data[: len(answer.data) // 2] if answer.half else answer.data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self.http = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


@contextmanager
def serving(answering: Answering, port: int = 0) -> Iterator[JudgeServer]:
    """The server, while the block runs."""
    server = JudgeServer(answering, port)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def is_quality(body: dict[str, Any]) -> bool:
    """Whether a request asks about the edit alone."""
    return sum(part["type"] == "image_url" for part in body["messages"][0]["content"]) == 1


def instruction_in(body: dict[str, Any]) -> str:
    """The text of a request."""
    return body["messages"][0]["content"][-1]["text"]
