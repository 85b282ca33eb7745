"""Which parts are synthetic, durations, machine, versions, seeds and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report.bar_charts import Bar, bars
from pipeline.report.blocks import Block, Code, Figure, Fold, Section, Table
from pipeline.report.published import Published
from pipeline.report.synthetic import synthetic_parts

STEPS = STEP_NAMES
OWN_FACTS = ("seconds", "started", "command")
"""Facts in the manifest that differ from step to step."""


def section(published: Published) -> Section:
    """Synthetic parts, timing, machine and versions, commands, settings."""
    blocks: list[Block] = [*_synthetic(published), *_steps(published), *_timing(published), *_commands(published), *_machines(published)]
    seeds = sorted({(step, path, value) for step in STEP_NAMES for path, value in _seeds(published.settings(step))})
    if seeds:
        blocks.append(Fold("Seeds", [Table(("Step", "Setting", "Seed"), seeds, text_columns=2)]))
    if published.configuration:
        blocks.append(Fold("Configuration", [Code(published.configuration)]))
    blocks += _fingerprints(published)
    return Section("provenance", "Provenance", "What is needed to judge and to reproduce these numbers.", blocks)


def _synthetic(published: Published) -> list[Block]:
    parts = synthetic_parts(published)
    if not parts:
        return []
    rows = [(part.what[0].upper() + part.what[1:], part.meaning) for part in parts]
    caption = "Synthetic and simulated parts. Read every number on this page with them in mind."
    return [Table(("What", "What it means"), rows, caption, text_columns=2)]


def _steps(published: Published) -> list[Block]:
    noted = published.manifest.get("steps", {})
    rows = []
    for step in STEP_NAMES:
        index = published.index(step)
        if not published.done(step):
            continue
        seconds = noted.get(step, {}).get("seconds")
        units = {Path(part.path).parent.name for parts in index.artifacts.values() for part in parts if part.path.startswith("units/")}
        counts = [words.count(index.counts[name]) if name in index.counts else "–" for name in ("in", "out", "quarantined")]
        took = words.duration(seconds) if isinstance(seconds, (int, float)) else "–"
        rows.append((step, *counts, words.count(len(units)) if units else "–", took))
    caption = "Rows in = rows out + quarantined (+ duplicates, for ratings delivered twice)."
    table = Table(("Step", "Rows in", "Rows out", "Quarantined", "Units", "Time"), rows, caption)
    return [Fold("Steps", [table])] if rows else []


def _timing(published: Published) -> list[Block]:
    noted = published.manifest.get("steps", {})
    seconds = {step: noted[step]["seconds"] for step in STEP_NAMES if isinstance(noted.get(step, {}).get("seconds"), (int, float))}
    if not seconds:
        return []
    rows = [Bar(step, value) for step, value in seconds.items()]
    caption = (
        f"{words.duration(sum(seconds.values()))} in all, as recorded when each step last ran. A step that was up to date takes no time."
    )
    return [Fold("Time per step", [Figure("Time per step", bars(rows, title="Time per step", form=words.duration), caption)])]


def _commands(published: Published) -> list[Block]:
    noted = published.manifest.get("steps", {})
    rows = [(step, noted[step].get("command", "–"), noted[step].get("started", "–")) for step in STEP_NAMES if step in noted]
    return [Fold("Commands", [Table(("Step", "Command", "Started"), rows, text_columns=3)])] if rows else []


def _machines(published: Published) -> list[Block]:
    """Machine and versions, once for all steps that share them."""
    noted = published.manifest.get("steps", {})
    shared: dict[str, list[str]] = {}
    for step in STEP_NAMES:
        facts = {key: value for key, value in noted.get(step, {}).items() if key not in OWN_FACTS}
        if facts:
            shared.setdefault(json.dumps(facts), []).append(step)
    blocks: list[Block] = []
    for text, steps in shared.items():
        title = "Machine and versions" if len(shared) == 1 else f"Machine and versions of {words.listing(steps)}"
        rows = [(words.name(key), value) for key, value in _flat(json.loads(text)) if value]
        blocks.append(Fold(title, [Table(("", ""), rows, text_columns=2)]))
    return blocks


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as (path, text)."""
    if isinstance(value, dict):
        return [pair for key, entry in value.items() for pair in _flat(entry, f"{prefix} {key}".strip())]
    if isinstance(value, list):
        nested = any(isinstance(entry, (dict, list)) for entry in value)
        return [(prefix, json.dumps(value) if nested else "\n".join(map(str, value)))]
    return [(prefix, str(value))]


def _seeds(settings: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(settings, list):
        return [found for i, entry in enumerate(settings) for found in _seeds(entry, f"{path}[{i}]")]
    if not isinstance(settings, dict):
        return []
    found = []
    for key, value in settings.items():
        below = f"{path}.{key}" if path else key
        if key in ("seed", "seeds", "shuffle_seed") and value is not None:
            found.append((below, ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
        else:
            found += _seeds(value, below)
    return found


def _fingerprints(published: Published) -> list[Block]:
    rows = [(step, published.index(step).fingerprint, published.index(step).key) for step in STEP_NAMES if published.done(step)]
    if not rows:
        return []
    caption = "Equal fingerprints mean equal content, byte for byte. Equal keys mean equal settings and inputs."
    return [Fold("Fingerprints of the steps", [Table(("Step", "Content", "Settings and inputs"), rows, caption=caption, text_columns=3)])]
