"""Ids made from content: the same image, instruction or settings have the same id on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

ID_DIGITS = 24
"""Hexadecimal digits of an id: 96 bits, a collision among 10^9 items has probability below 10^-11."""

Part = str | bytes | int | float | bool | None


def content_id(kind: str, *parts: Part) -> str:
    """Id of the given parts; ``kind`` distinguishes e.g. a source from a candidate made of equal parts."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:ID_DIGITS]


def settings_hash(*settings: Any) -> str:
    """Hash of configuration objects and plain JSON values, independent of key order."""
    plain = [s.model_dump(mode="json") if isinstance(s, BaseModel) else s for s in settings]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:ID_DIGITS]


def uniform(*parts: Part) -> float:
    """A number in [0, 1) that is a function of the parts; used where a seeded choice must not depend on order."""
    return int(content_id("uniform", *parts)[:13], 16) / 16**13
