"""RESULTS.md: each benchmark that writes its tables there has a part of its own between two markers."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def write(part: str, text: str) -> None:
    """Replace the part of this name."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, rest = RESULTS.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    RESULTS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
