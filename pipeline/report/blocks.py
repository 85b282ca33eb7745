"""Building blocks of a section of the page. Sections return them; only the template decides how they look in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup


class Block:
    """Base of the building blocks; ``kind`` names the template's macro that draws it."""

    @property
    def kind(self) -> str:
        """Name of the macro."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Paragraph(Block):
    """Running text."""

    text: str


@dataclass(frozen=True)
class Heading(Block):
    """Title of a part of a section."""

    text: str


@dataclass(frozen=True)
class Callout(Block):
    """A remark that must not be overlooked."""

    title: str
    text: str


@dataclass(frozen=True)
class Remark(Block):
    """One line that qualifies what is above it; ``link`` is the id of the section that says more, ``more`` its text."""

    text: str
    link: str
    more: str


@dataclass(frozen=True)
class Fact(Block):
    """A key number: its name, its value, and a remark."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts(Block):
    """Key numbers side by side."""

    facts: Sequence[Fact]


@dataclass(frozen=True)
class Table(Block):
    """``text_columns``: how many leading columns are words (the others are numbers, aligned right). The last ``muted``
    rows are shown apart, under the line ``muted_title``."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text_columns: int = 1
    muted: int = 0
    muted_title: str = ""
    emphasised: str = ""


@dataclass(frozen=True)
class Figure(Block):
    """A drawing with its caption."""

    title: str
    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Columns(Block):
    """Blocks side by side where there is room."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Stack(Block):
    """Blocks below each other, as one of ``Columns``."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Picture:
    """An image for the page, ``width`` x ``height`` pixels. ``uri`` is None where there is nothing to show; then ``lines`` say why.

    ``full``: address of the image in full size, relative to the page.
    """

    uri: str | None
    alt: str
    lines: Sequence[str] = ()
    pixelated: bool = False
    width: int = 0
    height: int = 0
    full: str = ""


@dataclass(frozen=True)
class Strip(Block):
    """Pictures of one instruction; ``lead`` is shown apart, e.g. the source of many edits."""

    instruction: str
    pictures: Sequence[Picture]
    note: str = ""
    lead: Picture | None = None


@dataclass(frozen=True)
class Example(Block):
    """A scored edit: its pictures, and beside them its score, flags, and a small table (``columns``, ``rows``) of what is known of it."""

    instruction: str
    pictures: Sequence[Picture]
    score: str
    flags: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Tab:
    """A part of ``Tabs``."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Tabs(Block):
    """Parts of which one is shown at a time, at most ``MOST``; ``name`` is unique on the page."""

    MOST: ClassVar[int] = 4

    name: str
    tabs: Sequence[Tab]


@dataclass(frozen=True)
class Fold(Block):
    """Blocks that are closed at first."""

    summary: str
    blocks: Sequence[Block]


def opened(blocks: Sequence[Block], count: int) -> list[Block]:
    """The first ``count`` blocks open, the rest folded."""
    rest = blocks[count:]
    return [*blocks[:count], Fold(f"{len(rest)} more", rest)] if rest else [*blocks]


@dataclass(frozen=True)
class Code(Block):
    """Text as a machine wrote or reads it."""

    text: str


@dataclass(frozen=True)
class Missing(Block):
    """A step that is not done, and the command that runs it."""

    step: str
    command: str


@dataclass(frozen=True)
class Section:
    """A titled part of the page; one without blocks is left out."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]
