"""Start the rating page: open the packet, the database and the roster of a run, and listen until interrupted.

In: a run directory with a packet. A lock allows one server per run. The server writes no access log, because the log would contain the
links.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import app, server_lock
from stages.annotate.page.current_packet import CurrentPacket
from stages.annotate.page.database import DATABASE, Database
from stages.annotate.page.roster import ROSTER, Roster, folder_of, make_private, roster_of
from stages.engine import steps
from stages.engine.rundir import RunDir


@contextmanager
def application(run: RunDir, config: AnnotateConfig) -> Generator[FastAPI]:
    """The application of a run; raises ``ValueError`` when there is no packet, or another server is running."""
    current = CurrentPacket(run.step(steps.ANNOTATE).path)
    folder = folder_of(run)
    make_private(folder)
    with server_lock.held(folder):
        database = Database(folder / DATABASE)
        try:
            current.load_into(database)
            yield app.make(current, database, roster_of(run), config)
        finally:
            database.close()


@contextmanager
def preview(run: RunDir, config: AnnotateConfig) -> Generator[tuple[FastAPI, str]]:
    """The application with a database and a roster of its own, which are deleted afterwards, and the token of its one link. The run is only
    read; a server of the run may work beside it."""
    current = CurrentPacket(run.step(steps.ANNOTATE).path)
    with TemporaryDirectory() as folder:
        database, roster = Database(Path(folder) / DATABASE), Roster(Path(folder) / ROSTER)
        try:
            current.load_into(database)
            _, token = roster.add("Preview")
            yield app.make(current, database, roster, config, preview=True), token
        finally:
            database.close()


def serve(run: RunDir, config: AnnotateConfig, *, host: str, started: Callable[[str], None]) -> None:
    """Listen on ``host`` and the configured port until interrupted; ``started`` is called with the address once the socket is open."""
    with _ended_by_signals(), application(run, config) as made, listening(host, config.serve.port) as listener:
        started(_address(listener))
        answering(made).run(sockets=[listener])


def serve_preview(run: RunDir, config: AnnotateConfig, *, host: str, started: Callable[[str], None]) -> None:
    """Listen on a free port until interrupted and store nothing; ``started`` is called with the link."""
    with _ended_by_signals(), preview(run, config) as (made, token), listening(host, 0) as listener:
        started(f"{_address(listener)}/a/{token}")
        answering(made).run(sockets=[listener])


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """SIGTERM, which service managers send, and SIGHUP of a closed terminal end the block as Ctrl-C does; nohup's SIGHUP stays ignored.

    uvicorn catches SIGINT and SIGTERM while it answers, and raises them again when it has ended.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if before[signal.SIGHUP] is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _address(listener: socket.socket) -> str:
    name, port = listener.getsockname()[:2]
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def answering(made: FastAPI) -> uvicorn.Server:
    """The HTTP server of an application."""
    return uvicorn.Server(uvicorn.Config(made, log_level="warning", access_log=False, server_header=False, ws="none", lifespan="off"))


@contextmanager
def listening(host: str, port: int) -> Generator[socket.socket]:
    """An open socket; raises ``ValueError`` when it cannot be opened."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port} ({error.strerror}); choose another --host or annotate.serve.port") from None
    with listener:
        yield listener
