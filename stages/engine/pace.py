"""When calls of a server may begin: a rate limit of one's own, and pauses that the server asks for, the same for all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_PAUSE = 60.0
"""Seconds."""


class Pace:
    """``per_minute``: calls that may begin; None: any number."""

    def __init__(self, per_minute: int | None, sleep: Callable[[float], None] = time.sleep) -> None:
        self.apart = 60 / per_minute if per_minute else 0.0
        self.sleep = sleep
        self.lock = threading.Lock()
        self.next_at = 0.0

    def wait(self) -> None:
        """Until this call's turn."""
        with self.lock:
            now = time.monotonic()
            turn = max(now, self.next_at)
            if self.apart:
                self.next_at = turn + self.apart
        if turn > now:
            self.sleep(turn - now)

    def pause(self, seconds: float) -> None:
        """No call begins for so long, at most a minute."""
        with self.lock:
            self.next_at = max(self.next_at, time.monotonic() + min(seconds, LONGEST_PAUSE))
