"""How long the rating page takes to start with the paper's 9,557 groups, and how long one person waits for it.

Makes a run with synthetic pictures (16 pixels wide: the size of pictures is the network's matter), exports it, and starts
`pipeline annotate serve` as its own process. Measures, over several starts: from the start of the process to the page and to the first
group; then the next group and a submission, with nothing and with everything rated; the lead's page with everything rated, with a new
judgement of all ratings and without. Writes the table into benchmarks/RESULTS.md between its markers; exits with 1 when the first group
takes 2 s or more.

    python benchmarks/annotation_page.py
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import results
from stages.annotate import step as annotate
from stages.annotate.packet import plan
from stages.annotate.page import server
from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts, images, storage
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit

GROUPS, EDITS, PEOPLE = 9557, 7, 10
TARGET = 2.0


class Person:
    """A client with the cookie of a link."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers: dict[str, str] = {}
        self.request("GET", f"/a/{token}")
        self.name = json.loads(self.request("GET", "/api/session"))["annotator"]
        self._headers["X-Annotator"] = self.name

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Content of the answer; raises ``RuntimeError`` for one that is not 200."""
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, self._headers | ({"Content-Type": "application/json"} if data else {}))
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        if cookie := answer.headers.get("set-cookie"):
            self._headers["Cookie"] = cookie.split(";")[0]
        return content


def make_run(path: Path, groups: int) -> Context:
    """A run with a done generate step, exported."""
    context = Context(RunDir(path), FlowConfig(name="page"), Cluster(RayConfig()))
    rng = np.random.default_rng(0)

    def picture() -> dict[str, Any]:
        return images.stored(images.png(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)))

    same = {
        "dataset": "synthetic",
        "split": "train",
        "instruction": "make the left mug blue",
        "language": "en",
        "task": "",
        "metadata": "{}",
        "benchmark": "",
        "licence": "",
    }
    sources = [same | {"source_id": content_id("s", n), "group": content_id("g", n), "image": picture()} for n in range(groups)]
    candidates = [
        contracts.candidate(candidate_id=content_id("c", n, e), source_id=content_id("s", n), editor=f"editor-{e}", seed=e, image=picture())
        for n in range(groups)
        for e in range(EDITS)
    ]
    folder = context.run.step("generate")
    drawn = [{"source_id": row["source_id"], "candidate_id": row["candidate_id"]} for row in candidates]
    tables = {name: contracts.table(name, rows) for name, rows in {"sources": sources, "candidates": candidates, "drawn": drawn}.items()}
    parts = publish_unit(folder.path, "all", tables)
    folder.publish(Index("generate", "key", {}, {}, artifacts={name: [part] for name, part in parts.items()}))
    annotate.export(context)
    storage.publish_bytes(path / "config.yaml", b"name: page\nannotate:\n  serve: {port: 0, requests_per_minute: 1000000}\n")
    return context


@contextmanager
def serving(run: Path) -> Generator[tuple[subprocess.Popen, int, float]]:
    """The server as its own process: the process, its port, and when it was started. The address is printed once the port is open."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "pipeline.cli", "annotate", "serve", "--run", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline().split("127.0.0.1:")[1].split()[0]), began
    finally:
        process.terminate()
        process.wait()


def rate_everything(context: Context, people: list[str]) -> None:
    """Put a submission for every place into the database, straight."""
    drawn = plan.read(context.run.path / "annotate" / "plan.json")
    groups = [json.loads(line) for line in (context.run.path / "annotate" / "export" / "groups.jsonl").read_text().splitlines()]
    submissions, scores, assignments = [], [], []
    for n, group in enumerate(groups):
        for place in range(drawn.wanted[group["group_id"]]):
            name, who = secrets.token_hex(16), people[(n + place) % len(people)]
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            submissions.append(
                (name, who, group["group_id"], 1, "production", None, "", 90.0, 100.0, 0, at, "v1", 1, 4, drawn.project, name)
            )
            assignments.append((who, group["group_id"], "production", at, 0.0, 1))
            for position, c in enumerate(group["candidates"], 1):
                for dimension in contracts.DIMENSIONS:
                    level = 1 + int(4 * (0.8 * uniform(c["candidate_id"], dimension) + 0.2 * uniform(name, c["candidate_id"], dimension)))
                    scores.append((name, c["candidate_id"], dimension, level, position))
    with sqlite3.connect(server.folder_of(context.run) / "submissions.sqlite") as connection:
        connection.executemany(f"INSERT OR IGNORE INTO submissions VALUES ({','.join('?' * 16)})", submissions)
        connection.executemany(
            "INSERT OR IGNORE INTO scores SELECT ?, ?, ?, ?, ? WHERE ?1 IN (SELECT submission_id FROM submissions)", scores
        )
        connection.executemany("INSERT OR REPLACE INTO assignments VALUES (?, ?, ?, ?, ?, ?)", assignments)


def seconds(work: Callable[[], Any], times: int) -> str:
    """Median and worst of several calls."""
    measured = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        measured.append(time.perf_counter() - began)
    return f"{statistics.median(measured):.3f} | {max(measured):.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        context = make_run(Path(folder) / "run", options.groups)
        roster = server.roster_of(context.run)
        tokens = [roster.add(f"Person {n}") for n in range(PEOPLE)]
        lead = roster.add("Lead", "lead")[1]
        pages, groups, cpu = [], [], []
        for _ in range(options.starts):
            with serving(context.run.path) as (process, port, began):
                person = Person(port, tokens[0][1])
                person.request("GET", "/")
                pages.append(time.perf_counter() - began)
                person.request("GET", "/api/work")
                groups.append(time.perf_counter() - began)
                spent = psutil.Process(process.pid).cpu_times()
                cpu.append(spent.user + spent.system)
        rows.append(f"start of the process to the page | {statistics.median(pages):.3f} | {max(pages):.3f}")
        rows.append(f"start of the process to the first group | {statistics.median(groups):.3f} | {max(groups):.3f}")
        rows.append(f"the same, processor time of the server | {statistics.median(cpu):.3f} | {max(cpu):.3f}")
        with serving(context.run.path) as (_, port, _):
            person = Person(port, tokens[1][1])
            rows.append(f"next group, nothing rated | {seconds(lambda: person.request('GET', '/api/work'), 20)}")
            rows.append(f"submission and next group | {seconds(lambda: rate_next(person), 20)}")
        rate_everything(context, [who.pseudonym for who, _ in tokens])
        with serving(context.run.path) as (_, port, _):
            late = Person(port, tokens[2][1])
            rows.append(f"next group, everything rated | {seconds(lambda: late.request('GET', '/api/work'), 20)}")
            boss = Person(port, lead)
            rows.append(
                f"lead's page with a new judgement, everything rated | {seconds(lambda: boss.request('GET', '/api/lead/summary'), 1)}"
            )
            rows.append(f"lead's page again, everything rated | {seconds(lambda: boss.request('GET', '/api/lead/summary'), 3)}")
    lines = [
        f"Command: `python benchmarks/annotation_page.py --groups {options.groups} --starts {options.starts}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f} at the end: {options.groups:,} groups, seconds.",
        "",
        "| what | median | worst |",
        "| --- | --- | --- |",
        *(f"| {row} |" for row in rows),
    ]
    results.write("annotation page", "\n".join(lines))
    print("\n".join(lines))
    if statistics.median(groups) >= TARGET:
        print(f"the first group takes {statistics.median(groups):.2f} s, the target is below {TARGET:g} s")
        return 1
    return 0


def rate_next(person: Person) -> None:
    """Rate the next group of a person."""
    group = json.loads(person.request("GET", "/api/work"))["groups"][0]
    scores = [{"candidate_id": c["id"], "dimension": d, "score": 3} for c in group["candidates"] for d in contracts.DIMENSIONS]
    said = {"submission_id": secrets.token_hex(16), "group_id": group["group_id"], "based_on": 0, "scores": scores}
    person.request("POST", "/api/submit", said | {"flag": None, "comment": "", "seconds": 60, "wall_seconds": 60, "changes": 0})


if __name__ == "__main__":
    sys.exit(main())
