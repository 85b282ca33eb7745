"""A server of ``/v1/images/edits`` on loopback that misbehaves as it is told."""

from __future__ import annotations

import base64
import email
import email.policy
import gzip
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

MODEL = "black-forest-labs/FLUX.1-Kontext-dev"


@dataclass
class Script:
    """``faults``: what happens to the next requests for edits, one each, before good answers. ``forms``: what came, image included.
    ``traces``: a file that gets a line per edit."""

    faults: list[Any] = field(default_factory=list)
    forms: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    model: str = MODEL
    engine: str = "vllm"
    key: str = ""
    seconds: float = 0
    traces: str = ""
    most_at_a_time: int = 0
    at_a_time: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def do_GET(self) -> None:
        answers = {
            "/v1/models": {"object": "list", "data": [{"id": self.script.model, "owned_by": self.script.engine}]},
            "/version": {"version": "0.30.0"},
            "/server_info": {"version": "0.5.23"},
        }
        if self.script.key and self.headers["Authorization"] != f"Bearer {self.script.key}":
            return self._answer(401, {"error": {"message": "no key"}})
        answer = answers.get(self.path)
        return self._answer(200 if answer else 404, answer or {"detail": "Not Found"})

    def do_POST(self) -> None:
        script = self.script
        form = self._form()
        with script.lock:
            script.forms.append(form)
            script.headers.append(dict(self.headers))
            script.at_a_time += 1
            script.most_at_a_time = max(script.at_a_time, script.most_at_a_time)
            fault = script.faults.pop(0) if script.faults else None
        time.sleep(script.seconds)
        if script.traces:
            with Path(script.traces).open("a") as file:
                file.write(f"odd/http {form['prompt']} {form['seed']}\n")
        with script.lock:
            script.at_a_time -= 1
        self._edit(form, fault)

    def _edit(self, form: dict[str, Any], fault: Any) -> None:
        image = Image.open(io.BytesIO(form["image"]))
        images: list[Any] = [ImageOps.invert(image.convert("RGB"))]
        if isinstance(fault, int):
            return self._answer(fault, {"detail": f"fault {fault}"})
        if fault == "silence":
            self.script.released.wait(60)
            self.close_connection = True
            return None
        if fault == "hang up":
            self.close_connection = True
            return None
        if fault == "size":
            images = [image.resize((3, 3))]
        if fault == "two":
            images *= 2
        if fault == "none":
            images = []
        data: list[Any] = [{"b64_json": base64.b64encode(_png(made)).decode()} for made in images]
        if fault == "text":
            data = [{"b64_json": base64.b64encode(b"<html>").decode()}]
        if fault == "no base64":
            data = [{"b64_json": "%%%"}]
        if fault == "url":
            data = [{"url": "http://localhost/1.png"}]
        body = json.dumps({"created": 0, "data": data}).encode()
        if fault == "half":
            return self._send(200, body[: len(body) // 2], len(body))
        if fault == "half json":
            return self._send(200, body[: len(body) // 2], len(body) // 2)
        if fault in ("gzip", "gzip without its end"):
            packed = gzip.compress(body)
            cut = packed[:-8] if fault == "gzip without its end" else packed  # of length and checksum: the text is whole
            return self._send(200, cut, len(cut), {"Content-Encoding": "gzip"})
        if fault == "drip":
            return self._drip(body)
        if fault == "drip headers":
            return self._drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 60 + b"\r\n\r\n", headers=True)
        if fault == "html":
            return self._send(200, b"<html>busy</html>", 17)
        if fault == "later":
            return self._answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.3"})
        return self._send(200, body, len(body))

    def _form(self) -> dict[str, Any]:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = email.message_from_bytes(head + body, policy=email.policy.HTTP)
        form: dict[str, Any] = {}
        for part in parts.iter_parts():  # ty: ignore[unresolved-attribute]
            name = part.get_param("name", header="content-disposition")
            content = part.get_payload(decode=True)
            form[name] = content if part.get_filename() else content.decode()
        return form

    def _answer(self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(answer).encode()
        self._send(status, body, len(body), headers)

    def _send(self, status: int, body: bytes, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(length), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if length > len(body):
            self.close_connection = True

    def _drip(self, body: bytes, *, headers: bool = False) -> None:
        if not headers:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
        try:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.script.released.wait(0.1):
                    return
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@contextmanager
def serving(script: Script, port: int = 0) -> Iterator[str]:
    """The server; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"script": script}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        script.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
