"""Compares two run directories file by file, by sha256: `python benchmarks/compare_runs.py runs/a runs/b`.

Left out, because they may differ between equal runs: manifest and configuration of the run, locks, logs of units, logs, pages
and the folders of images beside pages. Prints the counts and the names that differ; exits with 1 when there are any.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

OF_THE_RUN = ("manifest.json", "config.yaml")
"""Files left out at the top of the run directory only: a step's folder may have files of these names that must be equal."""
NAMES, SUFFIXES = (".lock", "units.jsonl", "lease-owner"), (".log", ".html")
"""Files left out in every folder."""


def hashes(run: Path) -> dict[str, str]:
    """sha256 of every compared file, by its path in the run directory. Raises ``ValueError`` where there is no such directory."""
    if not run.is_dir():
        raise ValueError(f"{run} is not a directory")
    found = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        beside_page = path.parent.parent == run and path.parent.with_name(path.parent.name.removesuffix("-images") + ".html").is_file()
        if path.is_file() and name not in OF_THE_RUN and path.name not in NAMES and path.suffix not in SUFFIXES and not beside_page:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def compare(first: Path, second: Path) -> tuple[str, bool]:
    """A report, and whether all compared files are equal. Two directories without any file are not equal: nothing was compared."""
    one, other = hashes(first), hashes(second)
    both = one.keys() & other.keys()
    names = {
        "differ": sorted(name for name in both if one[name] != other[name]),
        f"only in {first}": sorted(one.keys() - both),
        f"only in {second}": sorted(other.keys() - both),
    }
    lines = [f"{len(both) - len(names['differ']):,} files equal"]
    for what, files in names.items():
        lines += [f"{len(files):,} {what}", *(f"  {name}" for name in files)]
    return "\n".join(lines), bool(both) and not any(names.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN")
    try:
        text, equal = compare(*parser.parse_args().runs)
    except ValueError as error:
        parser.error(str(error))
    print(text)
    sys.exit(not equal)
