"""A program of another interpreter that answers requests, and that never outlives this process.

Requests and answers have pipes of their own. A third pipe, the lifeline, is held open here and says nothing: when this process dies, in
whatever way, it is closed, and the program's watchdog ends the program and all that it started.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.editors.process import child

TAIL_LINES = 20
"""Lines of the program's last output that an error shows."""


class ProcessFailure(RuntimeError):
    """A request without an answer. ``reason``: crashed, timed-out or bad-answer."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ChildProcess:
    """``python`` runs :mod:`stages.editors.process.child` with the file ``bridge``. What it prints goes to standard error, line by line."""

    def __init__(self, name: str, python: str, bridge: Path) -> None:
        self.name = name
        there, self._requests = os.pipe()
        self._answers, back = os.pipe()
        lifeline, self._lifeline = os.pipe()
        pipes = (there, back, lifeline)
        command = [python, "-I", "-u", str(Path(child.__file__)), *map(str, pipes), str(bridge)]
        try:
            self._program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
                pass_fds=pipes,
                start_new_session=True,
            )
        except OSError:
            for pipe in (self._requests, self._answers, self._lifeline):
                os.close(pipe)
            raise
        finally:
            for pipe in pipes:
                os.close(pipe)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self._closed = False
        self._lines: list[str] = []
        self._log = threading.Thread(target=self._copy_output, daemon=True)
        self._log.start()

    def ask(self, header: dict[str, Any], images: Sequence[bytes], seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request and wait for the answer. After a ``ProcessFailure`` the process is of no more use."""
        deadline = time.monotonic() + seconds
        try:
            self._write(child.pack(header, images), deadline)
            return child.unpack(lambda count: self._read(count, deadline))
        except ValueError as error:
            raise self._failure("bad-answer", f"sent something that is no answer ({error})") from None
        except TimeoutError:
            raise self._failure("timed-out", f"gave no answer in {seconds:g} seconds") from None
        except (EOFError, BrokenPipeError):
            raise self._failure("crashed", self._end()) from None

    def close(self) -> None:
        """Kill the program and all that it started."""
        if self._closed:
            return
        self._closed = True
        os.close(self._lifeline)
        self._program.kill()
        self._program.wait()
        os.close(self._requests)
        os.close(self._answers)
        self._log.join(timeout=10)

    def _write(self, message: bytes, deadline: float) -> None:
        left = memoryview(message)
        while left:
            self._wait(self._requests, True, deadline)
            left = left[os.write(self._requests, left[: 1 << 20]) :]

    def _read(self, count: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait(self._answers, False, deadline)
            part = os.read(self._answers, min(count - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _wait(self, pipe: int, writing: bool, deadline: float) -> None:
        """Until the pipe is ready. Raises ``EOFError`` if the program has ended: something that it started may hold the pipe open."""
        poll = select.poll()
        poll.register(pipe, select.POLLOUT if writing else select.POLLIN)
        while not poll.poll(1000 * min(1.0, max(0.0, deadline - time.monotonic()))):
            if self._program.poll() is not None:
                raise EOFError
            if time.monotonic() >= deadline:
                raise TimeoutError

    def _end(self) -> str:
        try:
            code = self._program.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipe in the middle of its work"
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"

    def _failure(self, reason: str, event: str) -> ProcessFailure:
        self.close()
        last = "\n".join(self._lines)
        return ProcessFailure(reason, f"the process of {self.name} {event}" + (f"; its last output:\n{last}" if last else ""))

    def _copy_output(self) -> None:
        assert self._program.stdout is not None
        with self._program.stdout as output:
            for line in iter(lambda: output.readline(1 << 16), b""):
                text = line.decode(errors="replace").rstrip().rpartition("\r")[2]  # of a progress bar only the last state
                self._lines = [*self._lines[1 - TAIL_LINES :], text[-500:]]
                sys.stderr.write(f"[{self.name}] {text}\n")
