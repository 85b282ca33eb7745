"""A limit on requests: a bucket of tokens per key that fills up again at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MOST_KEYS = 10_000


class RateLimit:
    """``per_minute`` requests per key and minute, all of them at once if need be."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = float(per_minute), clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, time
        self._turn = threading.Lock()

    def wait(self, key: str) -> float:
        """0 and one token less, or the seconds until there is a token."""
        with self._turn:
            now = self._clock()
            if len(self._buckets) > MOST_KEYS:  # keys that are full again need no memory
                self._buckets = {k: v for k, v in self._buckets.items() if self._filled(v, now) < self._most}
            tokens = self._filled(self._buckets.get(key, (self._most, now)), now)
            allowed = tokens >= 1
            self._buckets[key] = (tokens - 1 if allowed else tokens, now)
            return 0.0 if allowed else (1 - tokens) * 60 / self._most

    def _filled(self, bucket: tuple[float, float], now: float) -> float:
        tokens, since = bucket
        return min(self._most, tokens + (now - since) * self._most / 60)
