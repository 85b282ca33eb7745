"""The table of gates, and their configuration made of it. To add a gate: a file in this folder, and its line here."""

from __future__ import annotations

from typing import Any

from pydantic import Field, create_model

from stages.engine.config import Config
from stages.filter.gates import (
    aspect,
    broken_text,
    drift,
    flat,
    language,
    near_duplicate,
    near_embedding,
    nothing_asked,
    redrawn,
    size,
    source_reuse,
    swapped,
    unchanged,
    unrelated,
    upscaled,
)
from stages.filter.gates.gate import Gate

GATES: dict[str, Gate] = {
    "nothing_asked": nothing_asked.GATE,
    "broken_text": broken_text.GATE,
    "language": language.GATE,
    "size": size.GATE,
    "aspect": aspect.GATE,
    "flat": flat.GATE,
    "unrelated": unrelated.GATE,
    "unchanged": unchanged.GATE,
    "upscaled": upscaled.GATE,
    "swapped": swapped.GATE,
    "drift": drift.GATE,
    "redrawn": redrawn.GATE,
    "near_duplicate": near_duplicate.GATE,
    "near_embedding": near_embedding.GATE,
    "source_reuse": source_reuse.GATE,
}
"""By their keys in ``filter.gates``. An edit that several gates drop counts for the first of them in this order."""

_FIELDS: dict[str, Any] = {name: (gate.config, Field(gate.config(), description=gate.description)) for name, gate in GATES.items()}


class GatesConfig(create_model("_Gates", __base__=Config, **_FIELDS)):  # ty: ignore[unsupported-base]
    """One field per gate, named as in :data:`GATES`."""


def comparing(config: GatesConfig) -> list[str]:
    """Names of the gates that compare edits and drop some of them."""
    return [name for name, gate in GATES.items() if gate.compare and getattr(config, name).action == "drop"]
