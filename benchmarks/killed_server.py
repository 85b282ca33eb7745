"""A server on loopback, in a process of its own, that a benchmark kills and starts again at the same address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil


class KilledServer:
    """``program``: Python that serves, with its port as the first argument; ``imports``: folder of what it imports."""

    def __init__(self, program: str, imports: Path, *arguments: object) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-c", program, str(self.port), *map(str, arguments)]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(imports), os.environ.get("PYTHONPATH", "")])}
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen(self._command, env=self._environment)
        while True:
            assert self.process.poll() is None, "the server does not start"
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.05)
            else:
                return

    def kill(self) -> bool:
        """Kill it while it is asked, and start it again; False where nobody is connected."""
        if not any(link.status == psutil.CONN_ESTABLISHED for link in psutil.Process(self.process.pid).net_connections()):
            return False
        self.end()
        self.start()
        return True

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
