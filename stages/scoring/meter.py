"""How a scoring actor spends its time: per unit for the log, and as Ray metrics for monitoring.

Idle is the time between two passes of the actor's model, whatever it waits for: reading and decoding that is not done in advance,
publishing that nothing overlaps with. The time before the first pass counts from the end of loading the model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ray.util.metrics import Counter, Gauge

if TYPE_CHECKING:
    from reward.inference.passes import PassStats

Figures = dict[str, float]
"""Sums over the passes of a unit, each counted from the end of the pass before it: edits, tokens, flop, model_seconds, idle_seconds,
cpu_seconds of the process, possible_flop (idle time included; 0 where the device's peak is not known), out_of_memory."""


class Meter:
    """Of one actor. Metrics: ``ray_scoring_edits_total``, ``…_tokens_total``, ``…_model_seconds_total``, ``…_idle_seconds_total``,
    ``…_out_of_memory_total``, and the gauge ``ray_scoring_mfu`` of the newest pass; tagged with the run's step."""

    def __init__(self, step: str, peak: float | None) -> None:
        self.peak = peak
        self._free_since, self._cpu_before = time.monotonic(), time.process_time()
        self._lock = threading.Lock()
        tags = {"step": step}
        self._counters = {
            name: Counter(f"scoring_{name}", description=f"scoring: {name}", tag_keys=tuple(tags)).set_default_tags(tags)
            for name in ("edits", "tokens", "model_seconds", "idle_seconds", "out_of_memory")
        }
        self._mfu = Gauge("scoring_mfu", description="scoring: model FLOP utilisation", tag_keys=tuple(tags)).set_default_tags(tags)

    def count(self, spent: PassStats, figures: Figures) -> None:
        """Add a pass that ended now to the figures of its unit."""
        with self._lock:
            now = time.monotonic()
            idle = max(0.0, now - spent.seconds - self._free_since)
            cpu = time.process_time()
            cpu_seconds = cpu - self._cpu_before
            self._free_since, self._cpu_before = now, cpu
            values = {
                "edits": spent.edits,
                "tokens": spent.tokens,
                "model_seconds": spent.seconds,
                "idle_seconds": idle,
                "cpu_seconds": cpu_seconds,
                "out_of_memory": spent.out_of_memory,
                "flop": spent.flop,
                "possible_flop": (self.peak or 0.0) * (spent.seconds + idle),
            }
            for name, value in values.items():
                figures[name] = figures.get(name, 0.0) + value
            for name, counter in self._counters.items():
                if values[name]:
                    counter.inc(values[name])
            if values["possible_flop"]:
                self._mfu.set(spent.flop / values["possible_flop"])


def summary(figures: Sequence[Mapping[str, float]]) -> str:
    """Units in a few words for the progress bar: model FLOP utilisation where the device's peak is known, passes that did not fit."""
    total = {name: sum(entry.get(name, 0.0) for entry in figures) for name in {name for entry in figures for name in entry}}
    words = []
    if total.get("possible_flop"):
        words.append(f"MFU {total['flop'] / total['possible_flop']:.0%}")
    if total.get("out_of_memory"):
        words.append(f"{total['out_of_memory']:.0f} passes out of memory, halved")
    return ", ".join(words)
