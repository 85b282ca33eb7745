"""Versions of the libraries with which editors were tested. What they hand to the denoiser changed between releases without an error."""

from __future__ import annotations

from importlib.metadata import version

TESTED = {"diffusers": "0.42.1", "transformers": "5.23.0"}
INSTALL = f"install transformers {TESTED['transformers']} and diffusers {TESTED['diffusers']}"


def refusal(fault: str) -> str:
    """A sentence about what the installed transformers does. fault: its predicate."""
    return f"transformers {version('transformers')} {fault}, which the editor's weights were not trained with; {INSTALL}"
