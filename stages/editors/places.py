"""Paths among the settings of editors."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from stages.engine import storage

Place = Annotated[str, AfterValidator(lambda path: path and storage.absolute(path))]
"""Absolute, since workers have another working directory."""
