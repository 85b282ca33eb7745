"""The roster: people who may open the rating page. It is the only file with names; all other files contain pseudonyms.

``annotate/page/roster.json``: per person a pseudonym, the name, the role (``annotator`` or ``lead``), the sha256 of the link's token, and
whether the link is revoked. A token is shown once, when it is made; a lost link is replaced by a new one. A running server reads the file
again when it changes, so a revocation takes effect with the next request.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import secrets
import sys
import unicodedata
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from stages.engine import steps, storage
from stages.engine.rundir import RunDir

Role = Literal["annotator", "lead"]

ROSTER = "roster.json"
BEFORE_RESTORE = "before-restore-"
"""Beginning of the folders beside the roster that hold what a backup replaced."""

LONGEST_NAME = 200
"""Characters."""

_PSEUDONYM = re.compile(r"(annotator|lead)-\d+", re.IGNORECASE)

TOKEN_BYTES = 24
"""Random bytes of a token: 192 bits."""


@dataclass(frozen=True)
class Person:
    """One line of the roster."""

    pseudonym: str
    name: str
    role: Role
    token_sha256: str
    revoked: bool = False


class Roster:
    """The roster file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_at: tuple[int, int] | None = None
        self._people: list[Person] = []

    @property
    def people(self) -> list[Person]:
        """All people in the order of joining. The file is read again when it has changed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return []
        if (found.st_mtime_ns, found.st_ino) != self._read_at:
            try:
                self._people = self._read()
            except ValueError as error:
                if self._read_at is None:
                    raise
                print(f"warning: {error}; the people read before stay", file=sys.stderr, flush=True)  # somebody may be writing it
            self._read_at = (found.st_mtime_ns, found.st_ino)
        return self._people

    def _read(self) -> list[Person]:
        value = storage.read_json(self.path, "restore it from a backup")
        try:
            people = [Person(**entry) for entry in value]
        except TypeError as error:
            raise ValueError(f"{self.path} is not a roster ({error}); restore it from a backup") from None
        if not isinstance(value, list) or not all(isinstance(text, str) for p in people for text in (p.pseudonym, p.name, p.token_sha256)):
            raise ValueError(f"{self.path} is not a roster: it should be a list of people, with texts; restore it from a backup")
        return people

    def of_token(self, token: str) -> Person | None:
        """The person with this token; None for an unknown or revoked token."""
        digest = _digest(token)
        return next((p for p in self.people if secrets.compare_digest(p.token_sha256, digest) and not p.revoked), None)

    def add(self, name: str, role: Role = "annotator") -> tuple[Person, str]:
        """Add a person; returns the person and the token of the link. Raises ``ValueError`` for a name that is on the roster, also in other
        capital letters, or has no letters, or has the form of a pseudonym."""
        name = as_name(name)
        if _PSEUDONYM.fullmatch(name):  # otherwise `revoke` and `renew` of one person would find another one
            raise ValueError(f"the name {name} has the form of a pseudonym, which the roster gives itself; give the name of the person")
        with self._changing() as people:
            if (known := spelling([person.name for person in people], name)) is not None:
                raise ValueError(
                    f"{name} is on the roster{'' if known == name else f' as {known}'}; `pipeline annotate roster renew` gives a new link, "
                    "another person needs another name"
                )
            number = 1 + max((_number(pseudonym) for pseudonym in self._given(people) if pseudonym.startswith(f"{role}-")), default=0)
            token = secrets.token_urlsafe(TOKEN_BYTES)
            person = Person(f"{role}-{number:02d}", name, role, _digest(token))
            people.append(person)
        return person, token

    def _given(self, people: Sequence[Person]) -> list[str]:
        """Pseudonyms that were given, also to people who joined after the backup that was restored: their ratings may be in the ledger."""
        before = [Roster(path).people for path in self.path.parent.glob(f"{BEFORE_RESTORE}*/{ROSTER}")]
        return [person.pseudonym for group in (people, *before) for person in group]

    def revoke(self, who: str) -> Person:
        """Revoke a person's link; ``who`` is a name or a pseudonym."""
        return self._replace(who, revoked=True)

    def renew(self, who: str) -> tuple[Person, str]:
        """Replace a person's token, also that of a revoked link."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        return self._replace(who, token_sha256=_digest(token), revoked=False), token

    def _replace(self, who: str, **changes: object) -> Person:
        who = as_name(who)
        with self._changing() as people:
            place = next((i for i, person in enumerate(people) if who in (person.name, person.pseudonym)), None)
            if place is None:
                raise ValueError(f"{who} is not on the roster {self.path}; `pipeline annotate roster list` shows who is")
            people[place] = replace(people[place], **changes)  # type: ignore[arg-type]
            return people[place]

    @contextmanager
    def _changing(self) -> Generator[list[Person]]:
        """The people, to change. The file is written back as a whole, readable only by its owner, under a lock."""
        make_private(self.path.parent)
        with open(self.path.parent / ".roster.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            people = list(self.people)
            yield people
            storage.publish_json(self.path, [asdict(person) for person in people], private=True)


def as_name(text: str) -> str:
    """A name in one Unicode spelling, without spaces around it. Raises ``ValueError`` where nothing of it is seen, for control characters,
    for what is no text, and for more than ``LONGEST_NAME`` characters."""
    name = unicodedata.normalize("NFC", text.strip())
    kinds = {unicodedata.category(character) for character in name}
    if kinds <= {"Cf", "Zs"} or kinds & {"Cc", "Cs"}:
        raise ValueError(f"the name {text!a} is empty, or has control characters or half a character; give the name of the person")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name {name[:20]}... has {len(name):,} characters; a name has at most {LONGEST_NAME}")
    return name


def spelling(names: Iterable[str], name: str) -> str | None:
    """That of ``names`` which is the same name, whatever its capital letters; None where there is none."""
    return next((known for known in names if known.casefold() == name.casefold()), None)


def folder_of(run: RunDir) -> Path:
    """Folder of the page's files."""
    return run.step(steps.ANNOTATE).path / "page"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can open."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def roster_of(run: RunDir) -> Roster:
    """The roster of a run."""
    return Roster(folder_of(run) / ROSTER)


def _number(pseudonym: str) -> int:
    digits = pseudonym.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
