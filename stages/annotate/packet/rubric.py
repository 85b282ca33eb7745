"""The rubric: the texts of a version in its languages, checked, and as blocks, so that the page interprets no markup.

In: Markdown (headings, paragraphs, bullets, tables, bold text), a file per language: ``<version>.md`` and ``<version>.<language>.md``, e.g.
``v2.de.md``. The folder ``annotate.rubrics`` comes before the rubrics that are shipped. A dimension has a heading of its own, its name in
words (``## Visual quality``) or, in other words or another language, with the name behind it (``## Bildqualität {#visual_quality}``). Under
it stand the criteria of the scores as bullets, ``- **<score> <name>**: <criterion>``. Out: texts by language, and their parts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.annotate.ratings.rating_task import RatingTask, Scale
from stages.engine import storage

DEFAULT = ""
"""The language of a file without one in its name."""

MOST_NAMED = 9
"""A scale with more levels is a slider, whose levels need no criteria."""

_SHIPPED = Path(__file__).with_name("rubrics")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_RULE = re.compile(r"[\s|:-]+")
_NAMED = re.compile(r"(?P<title>.*?)\s*\{#(?P<dimension>\w+)\}")
_SCORE = re.compile(r"-?\d+(\.\d+)?( .*)?")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


@dataclass
class Section:
    """A dimension in a rubric. title: its heading; names, criteria: of the scores, by the score as it is written."""

    title: str
    names: dict[str, str] = field(default_factory=dict)
    criteria: dict[str, str] = field(default_factory=dict)


def read(folder: str | None, task: RatingTask) -> dict[str, str]:
    """Texts of the task's rubric by language. Raises ``ValueError`` for a version that does not exist, and for one without a dimension or
    a level of the task."""
    version = task.rubric_version
    own = Path(folder) if folder is not None else None
    if own is not None and not own.is_dir():
        raise ValueError(f"annotate.rubrics: there is no folder {own}; give the folder with your rubrics, or leave it out")
    for place in (own, _SHIPPED) if own is not None else (_SHIPPED,):
        files = {language: path for path in sorted(place.glob("*.md")) if (language := _language(path, version)) is not None}
        if files:
            texts = {}
            for language, path in files.items():
                try:
                    texts[language] = path.read_text(encoding="utf-8-sig")
                except UnicodeDecodeError as error:
                    raise ValueError(f"rubric {path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
                _check(str(path) if place is own else path.name, texts[language], task.dimensions, task.scale)
            return texts
    have = ", ".join(sorted({path.name.split(".")[0] for place in (own, _SHIPPED) if place is not None for path in place.glob("*.md")}))
    raise ValueError(
        f"annotate.rubric_version: there is no rubric {version!r} to export (there is {have}); put {version}.md into a folder and name the "
        "folder in annotate.rubrics"
    )


def file_name(version: str, language: str) -> str:
    """Name of a rubric's file."""
    return f"{version}.{language}.md" if language else f"{version}.md"


def versions(texts: Mapping[str, str]) -> list[str]:
    """Versions among the names of rubric files, in order."""
    return list(dict.fromkeys(name.split(".")[0] for name in texts))


def packed(folder: Path, hashes: Mapping[str, str], version: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Publish the texts in the packet's folder of rubrics; returns the hashes of all texts there by file name, the earlier ``hashes`` among
    them. Raises ``ValueError`` for a version that raters have seen with another text."""
    new = {file_name(version, language): text.encode() for language, text in texts.items()}
    found = {name: hashlib.sha256(data).hexdigest() for name, data in new.items()}
    for name, sha256 in found.items():
        if hashes.get(name, sha256) != sha256:
            raise ValueError(
                f"rubric {name} has changed since it was exported; save the changed text as a new version and name that in "
                "annotate.rubric_version"
            )
    folder.mkdir(exist_ok=True)
    for name, data in new.items():
        storage.publish_bytes(folder / name, data)
    return {**hashes, **found}


def blocks(markdown: str) -> list[dict[str, Any]]:
    """Blocks in their order, each with its ``kind`` (``h1``, ``h2``, ``p``, ``li``, ``row``) and its ``cells``, each a list of ``[text,
    bold]``, and the ``dimension`` that a heading names; lines of a paragraph or of a bullet are joined."""
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
            named = _NAMED.fullmatch(text) if kind in ("h1", "h2") else None
            if named:
                text = named["title"]
            cells = text.strip("|").split("|") if kind == "row" else [text]
            found.append(
                {"kind": kind, "cells": [_spans(cell.strip()) for cell in cells]} | ({"dimension": named["dimension"]} if named else {})
            )
            joins = kind in ("p", "li")
    return found


def sections(markdown: str, dimensions: Sequence[str]) -> dict[str, Section]:
    """The dimensions that have a heading."""
    found: dict[str, Section] = {}
    section = Section("")
    for block in blocks(markdown):
        spans = block["cells"][0]
        text = "".join(part for part, _ in spans)
        if block["kind"] in ("h1", "h2"):
            dimension = block.get("dimension") or text.lower().replace(" ", "_")
            section = found.setdefault(dimension, Section(text)) if dimension in dimensions else Section("")
        elif block["kind"] == "li" and spans[0][1] and _SCORE.fullmatch(spans[0][0]):
            score, _, name = spans[0][0].partition(" ")
            section.names[score] = name.strip()
            section.criteria[score] = text.removeprefix(spans[0][0]).removeprefix(":").strip()
    return found


def level_words(markdown: str, dimensions: Sequence[str], levels: Sequence[float]) -> list[str]:
    """The names of the levels, as the first dimension gives them; empty where it has none."""
    found = sections(markdown, dimensions)
    names = found[dimensions[0]].names
    return [names.get(f"{level:g}", "") for level in levels]


def _language(path: Path, version: str) -> str | None:
    """The language of a file of this version; None for a file of another one."""
    if path.stem == version:
        return DEFAULT
    language = path.stem.removeprefix(f"{version}.")
    return language if path.stem != language and _LANGUAGE.fullmatch(language) else None


def _check(name: str, markdown: str, dimensions: Sequence[str], scale: Scale) -> None:
    """Raise ``ValueError`` where the raters would miss a dimension or the meaning of a score."""
    found = sections(markdown, dimensions)
    for dimension in dimensions:
        if dimension not in found:
            title = dimension.replace("_", " ").capitalize()
            raise ValueError(
                f"rubric {name} has no heading for the dimension {dimension}; write '## {title}' or '## Your words {{#{dimension}}}'"
            )
        if len(scale.levels) > MOST_NAMED:
            continue
        wanted, given = [f"{level:g}" for level in scale.levels], found[dimension].criteria
        if sorted(given) != sorted(wanted):
            raise ValueError(
                f"rubric {name} describes the scores {', '.join(sorted(given)) or 'none'} of {dimension}, the scale has {scale} "
                "(annotate.scale_min, scale_max, scale_step); write a bullet '- **<score> <name>**: <criterion>' for each"
            )


def _kind(text: str) -> tuple[str, str]:
    for mark, kind in (("## ", "h2"), ("# ", "h1"), ("- ", "li")):
        if text.startswith(mark):
            return kind, text.removeprefix(mark)
    return ("row", text) if text.startswith("|") else ("p", text)


def _spans(text: str) -> list[list[Any]]:
    parts = _BOLD.split(text)
    return [[part, i % 2 == 1] for i, part in enumerate(parts) if part]
