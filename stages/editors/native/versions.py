"""Versions of the libraries that make an edit."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import version

from finetune.tested_versions import TESTED


@cache
def installed() -> dict[str, str]:
    """Versions of torch, diffusers and transformers. Warns, once in a process, of those that the adapter was not tested with."""
    found = {name: version(name) for name in ("torch", *TESTED)}
    untested = [f"{name} {found[name]} (tested: {tested})" for name, tested in TESTED.items() if found[name] != tested]
    if untested:
        warnings.warn(
            f"editors in process were not tested with {' and '.join(untested)}; compare some edits before a long run", stacklevel=2
        )
    return found
