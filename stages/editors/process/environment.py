"""The environment of an editor: an interpreter with pinned packages, and a checkout of its authors' code where there is no package."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

LOCKS = Path(__file__).parent / "environments"
DONE = "installed.json"
"""In the folder of an environment once it is complete."""


@dataclass(frozen=True)
class Checkout:
    """Code that is used from a clone, since its authors made no package. ``file``: one that a complete checkout has."""

    url: str
    commit: str
    file: str


@dataclass(frozen=True)
class Environment:
    """What an editor needs beside this project. ``lock``: a requirements file with exact versions, for Python ``python``.

    ``licences``: of what it brings, in words. ``packages_gb``: on the disk, estimated. ``by_hand``: what pip cannot take from a lock file.
    """

    name: str
    lock: Path
    python: str
    licences: str
    packages_gb: float = 0.0
    checkout: Checkout | None = None
    by_hand: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is installed by default: under ``$XDG_DATA_HOME``, or ``~/.local/share``."""
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return Path(base) / "edit-reward-pipeline" / "editors" / self.name

    @property
    def lock_hash(self) -> str:
        """First half of the SHA-256 of the lock file."""
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()[:32]

    def missing(self, editor: str, python: str | None, checkout: str | None) -> str:
        """A sentence on what is not there, or nothing. ``python``, ``checkout``: the user's own, in place of the default."""
        if python is not None:
            if not os.access(python, os.X_OK):
                return f"settings.python: there is no interpreter {python}"
        elif not (self.folder / DONE).exists():
            return f"there is no environment in {self.folder}; `pipeline editors install {editor}` makes it"
        elif json.loads((self.folder / DONE).read_text())["lock"] != self.lock_hash:
            return f"the environment in {self.folder} is of another lock file; `pipeline editors install {editor}` makes it anew"
        if self.checkout is not None:
            place = Path(checkout) if checkout else self.folder / "checkout"
            if not (place / self.checkout.file).exists():
                return f"{place} has no {self.checkout.file}; {self.clone(place)} brings it"
        return ""

    def clone(self, place: Path) -> str:
        """The commands that bring the checkout."""
        assert self.checkout is not None
        return f"`git clone {self.checkout.url} {place} && git -C {place} checkout {self.checkout.commit}`"


def interpreter(folder: Path) -> Path:
    """The interpreter of an environment that is installed in the folder."""
    return folder / "venv" / "bin" / "python"


def install(environment: Environment, folder: Path, python: str) -> None:
    """Make the virtual environment with the interpreter ``python`` and install the lock file's packages into it.

    An older one in the folder is replaced, a checkout there is kept. Raises ``ValueError`` for an interpreter of another version, and where
    a package cannot be installed; then the folder counts as not installed.
    """
    version = _version(python)
    if version != environment.python:
        raise ValueError(
            f"the lock file of {environment.name} is for Python {environment.python}, and {python} is {version}; "
            f"give --python /path/to/python{environment.python}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DONE).unlink(missing_ok=True)
    _run([python, "-m", "venv", "--clear", str(folder / "venv")], "the virtual environment cannot be made")
    pip = [str(interpreter(folder)), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(environment.lock)]
    _run(pip, f"the packages of {environment.name} cannot be installed")
    (folder / DONE).write_text(json.dumps({"lock": environment.lock_hash, "python": version}) + "\n")


def _version(python: str) -> str:
    command = [python, "-I", "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"--python {python} is no interpreter that can be run: {error}") from error


def _run(command: list[str], otherwise: str) -> None:
    """Run a command, its output on the terminal."""
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"{otherwise}: {error}") from error
