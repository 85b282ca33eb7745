"""What the tests of the rating page start from: a run with synthetic pictures, a server in a thread, and a client that speaks to it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from rated_run import make_run, rating_task_of, source, write_csv

from stages.annotate import step as annotate
from stages.annotate.config import PlanConfig, ServeConfig
from stages.annotate.page import server
from stages.annotate.page.roster import Roster
from stages.context import Context
from stages.engine import contracts, images
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index
from stages.engine.units import publish_unit

EDITS = 7
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> make it {{ 7*7 }} & größer"


def picture(*parts: int | str, size: int = 64) -> bytes:
    """A PNG with two coloured fields, other ones for other parts."""
    rng = np.random.default_rng([ord(c) for c in "".join(map(str, parts))])
    pixels = np.full((size, size, 3), rng.integers(60, 200, 3), dtype=np.uint8)
    pixels[size // 4 : size // 2, size // 4 : 3 * size // 4] = rng.integers(0, 255, 3)
    return images.png(pixels)


def page_run(path: Path, groups: int = 6, edits: int = EDITS, instruction: str | None = None, **annotate_settings: Any) -> Context:
    """A run whose groups have ``edits`` sampled candidates with pictures that a browser shows."""
    rows = [source(number, image={"bytes": picture("source", number), "path": None}) for number in range(groups)]
    if instruction is not None:
        rows = [row | {"instruction": instruction} for row in rows]
    context = make_run(path, sources=rows, simulate=None, **annotate_settings)
    candidates = [
        contracts.candidate(
            candidate_id=content_id("candidate", number, place),
            source_id=content_id("source", number),
            editor=f"world/editor-{place}",
            editor_revision="revision-7",
            seed=place,
            settings_hash="settings",
            image={"bytes": picture("edit", number, place), "path": None},
        )
        for number in range(groups)
        for place in range(edits)
    ]
    folder = context.run.step("generate")
    drawn = [{"source_id": row["source_id"], "candidate_id": row["candidate_id"]} for row in candidates]
    rows_of = {"sources": rows, "candidates": candidates, "drawn": drawn}
    tables = {name: contracts.table(name, found) for name, found in rows_of.items()}
    parts = publish_unit(folder.path, "pictures", tables)
    folder.publish(Index("generate", "pictures", {}, {}, artifacts={name: [part] for name, part in parts.items()}))
    return context


def gold_file(path: Path, context: Context, groups: Sequence[str]) -> tuple[Path, dict[tuple[str, str, str], int]]:
    """Ratings of three experts, who agree, and their scores."""
    work = rating_task_of(context)
    scores = {
        (group, candidate, dimension): 1 + int(4 * uniform("gold", candidate, dimension))
        for group in groups
        for candidate in work.sampled[group]
        for dimension in work.dimensions
    }
    rows = [
        {
            "group_id": group,
            "candidate_id": candidate,
            "dimension": dimension,
            "annotator_id": f"expert-{expert}",
            "score": score,
            "comment": "the hat is missing" if expert == 1 else "",
        }
        for (group, candidate, dimension), score in scores.items()
        for expert in (1, 2, 3)
    ]
    return write_csv(path, rows), scores


def exported(context: Context) -> Context:
    """The run, with its packet and plan."""
    annotate.export(context)
    return context


def plan(**settings: Any) -> PlanConfig:
    return PlanConfig(**settings)


@contextmanager
def serving(context: Context, port: int = 0, **settings: Any) -> Generator[str]:
    """The page of a run on a free port of this machine, in a thread of this process; gives ``host:port``."""
    config = context.flow.annotate.model_copy(update={"serve": ServeConfig(**{"requests_per_minute": 100_000} | settings)})
    with server.application(context.run, config) as app, server.listening("127.0.0.1", port) as listener, running(app, listener) as address:
        yield address


@contextmanager
def running(app: FastAPI, listener: socket.socket) -> Generator[str]:
    """An application that listens, in a thread; gives ``host:port``."""
    started = server.answering(app)
    thread = threading.Thread(target=started.run, kwargs={"sockets": [listener]})
    thread.start()
    while not started.started:
        time.sleep(0.01)
    try:
        yield "{}:{}".format(*listener.getsockname()[:2])
    finally:
        started.should_exit = True
        thread.join()


def roster(context: Context) -> Roster:
    return server.roster_of(context.run)


class Client:
    """A browser without a screen: keeps the cookie of a link, and sends the header of the page."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=30)
        self.cookie, self.who = "", ""
        if token is not None:
            self.open(token)

    def open(self, token: str) -> None:
        status, _, headers = self.raw("GET", f"/a/{token}")
        assert status == 200, status
        self.cookie = headers["set-cookie"].split(";")[0]
        session = self.get("/api/session")
        self.who, self.dimensions = session["annotator"], session["dimensions"]

    def raw(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        sent = {"X-Annotator": self.who, **({"Cookie": self.cookie} if self.cookie else {}), **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        self._connection.close()  # the server closes one that was idle for five seconds, or whose body it did not read
        self._connection.request(method, path, data, sent)
        response = self._connection.getresponse()
        return response.status, response.read(), response.headers

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, data, _ = self.raw(method, path, body, headers)
        return status, json.loads(data)

    def get(self, path: str) -> Any:
        status, value = self.ask("GET", path)
        assert status == 200, (status, value)
        return value

    def submission(self, group: Mapping[str, Any], score: Any = None, **changes: Any) -> dict[str, Any]:
        """A whole group; score: of a candidate and a dimension, or of all."""
        given = score if callable(score) else lambda candidate, dimension: score or 1 + int(4 * uniform(self.who, candidate, dimension))
        scores = [
            {"candidate_id": candidate["id"], "dimension": dimension, "score": given(candidate["id"], dimension)}
            for candidate in group["candidates"]
            for dimension in self.dimensions
            if group["given"] is None or dimension in group["given"].get(candidate["id"], {})
        ]
        said = group["said"]["revision"] if group["said"] else 0
        return {
            "submission_id": secrets.token_hex(16),
            "group_id": group["group_id"],
            "based_on": said,
            "scores": scores,
            "flag": None,
            "comment": "",
            "seconds": 61.5,
            "wall_seconds": 80.0,
            "changes": 1,
            "rubric_version": "v1",
        } | changes

    def submit(self, group: Mapping[str, Any], score: Any = None, **changes: Any) -> Any:
        status, value = self.ask("POST", "/api/submit", self.submission(group, score, **changes))
        assert status == 200, (status, value)
        return value
