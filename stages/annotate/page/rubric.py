"""The rubric as blocks, so that the page interprets no markup.

In: the rubric's Markdown (headings, paragraphs, bullets, tables, bold text). Out: a list of blocks, each with its ``kind`` (``h1``, ``h2``,
``p``, ``li``, ``row``) and its ``cells``, each a list of ``[text, bold]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_BOLD = re.compile(r"\*\*(.+?)\*\*")
_RULE = re.compile(r"[\s|:-]+")


def blocks(markdown: str) -> list[dict[str, Any]]:
    """Blocks in their order; lines of a paragraph or of a bullet are joined."""
    found: list[dict[str, Any]] = []
    joins = False
    for line in markdown.splitlines():
        text = line.strip()
        kind, text = _kind(text)
        if kind == "row" and _RULE.fullmatch(text):
            continue
        if not text:
            joins = False
        elif kind == "p" and joins:
            found[-1]["cells"][0] += _spans(" " + text)
        else:
            cells = text.strip("|").split("|") if kind == "row" else [text]
            found.append({"kind": kind, "cells": [_spans(cell.strip()) for cell in cells]})
            joins = kind in ("p", "li")
    return found


def criteria(markdown: str, dimensions: Sequence[str]) -> dict[str, dict[str, str]]:
    """The criterion of every score by dimension: the bullets ``- **<score> <name>**: <criterion>`` under the heading of the dimension."""
    found: dict[str, dict[str, str]] = {dimension: {} for dimension in dimensions}
    section: dict[str, str] = {}
    for block in blocks(markdown):
        spans = block["cells"][0]
        text = "".join(part for part, _ in spans)
        if block["kind"] in ("h1", "h2"):
            section = found.get(text.lower().replace(" ", "_"), {})
        elif block["kind"] == "li" and spans[0][1]:
            section[spans[0][0].split()[0]] = text.removeprefix(spans[0][0]).removeprefix(":").strip()
    return found


def _kind(text: str) -> tuple[str, str]:
    for mark, kind in (("## ", "h2"), ("# ", "h1"), ("- ", "li")):
        if text.startswith(mark):
            return kind, text.removeprefix(mark)
    return ("row", text) if text.startswith("|") else ("p", text)


def _spans(text: str) -> list[list[Any]]:
    parts = _BOLD.split(text)
    return [[part, i % 2 == 1] for i, part in enumerate(parts) if part]
