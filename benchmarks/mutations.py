"""Tests that can fail: change a line of the product, run the tests that should notice, and say whether they do.

    python benchmarks/mutations.py                       # all of benchmarks/mutations.yaml
    python benchmarks/mutations.py ema "tar header"      # those whose description holds one of these words
    python benchmarks/mutations.py --write               # all, and the table of benchmarks/RESULTS.md

An entry of the list names a file, a piece of its text that occurs once, the text in its place, tests, and what it breaks. Each is applied
to a copy of the checkout of its own, in a folder that is removed, and killed when a test fails there. ``equivalent`` says why no test can:
such an entry is run as well, and has to survive. The tests run on an unchanged copy, too, where they must pass. An entry
whose text is no longer there is named. Exits with 1 when there is one, and when a mutation survives.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import yaml

from benchmarks import results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIST = HERE / "mutations.yaml"
SHARED = ROOT.parent / "shared"
HEAVY = ("torch", "transformers", "peft", "diffusers", "ray", "pyarrow.parquet", "scipy.stats", "hypothesis", "pytest")
"""Imported once: what runs a mutation is forked from a process that has them."""
TIMEOUT = 240
"""Seconds that a test may take; a mutation with which it does not end is killed."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; others mean that it could not run."""


@dataclass(frozen=True)
class Mutation:
    """``file``: path in the checkout. ``old`` occurs in it once. ``tests``: arguments of pytest. ``equivalent``: why no test can see it."""

    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""

    def applied(self, text: str) -> str:
        """The file's text with it. Raises ``ValueError`` where the old text does not occur exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {text.count(self.old)} times, expected once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """Exit code of pytest, its output, and seconds."""

    code: int
    output: str
    seconds: float


def read(path: Path) -> list[Mutation]:
    """The list."""
    return [Mutation(**entry | {"tests": tuple(entry["tests"])}) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]


def misfit(mutation: Mutation) -> str:
    """Why a mutation is not of this checkout; empty where it is."""
    try:
        mutation.applied((ROOT / mutation.file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return str(error)
    absent = [test for test in mutation.tests if not (ROOT / test.partition("::")[0]).exists()]
    return f"there is no {absent[0]}" if absent else ""


@contextlib.contextmanager
def checkout() -> Generator[Path]:
    """A copy of the files that git knows, beside the real data where this checkout has them."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / "checkout"
        for name in subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        if SHARED.exists():
            (Path(folder) / "shared").symlink_to(SHARED)
        yield copy


def outcome(mutation: Mutation | None, tests: Sequence[str]) -> Outcome:
    """Run tests in a copy with a mutation, or in an unchanged one; for a process of its own, whose modules are the copy's from then on."""
    started = time.monotonic()
    with checkout() as copy:
        if mutation:
            file = copy / mutation.file
            file.write_text(mutation.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path.insert(0, str(copy))
        sys.dont_write_bytecode = True
        output = io.StringIO()
        import pytest

        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-o", f"timeout={TIMEOUT}", *tests])
        os.chdir(ROOT)
    return Outcome(int(code), output.getvalue(), time.monotonic() - started)


def changed(mutation: Mutation) -> tuple[Mutation, Outcome]:
    """Run a mutation's own tests with it."""
    return mutation, outcome(mutation, mutation.tests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutations whose description holds one of these")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write the table of RESULTS.md")
    options = parser.parse_args()
    chosen = [one for one in read(LIST) if not options.words or any(word in one.breaks for word in options.words)]
    stale = {one: found for one in chosen if (found := misfit(one))}
    for mutation, found in stale.items():
        print(f"STALE  {mutation.breaks}: {found}; mend the entry")
    mutations = [one for one in chosen if one not in stale]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tests = sorted({test for one in mutations for test in one.tests})
    survivors, broken = [], []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*HEAVY])
    with ProcessPoolExecutor(options.processes, context, max_tasks_per_child=1) as pool:  # may have children, as a pool's may not
        unchanged = pool.submit(outcome, None, tests)
        for done in as_completed([pool.submit(changed, mutation) for mutation in mutations]):
            mutation, found = done.result()
            said = {PASSED: "equivalent" if mutation.equivalent else "SURVIVED", FAILED: "killed"}.get(found.code, "BROKEN")
            print(f"{said:10} {found.seconds:4.0f} s  {mutation.breaks} ({mutation.file})", flush=True)
            survivors += [mutation] if said == "SURVIVED" else []
            broken += [found.output] if said == "BROKEN" or (said == "killed" and mutation.equivalent) else []
        if unchanged.result().code != PASSED:
            broken.append(unchanged.result().output)
    print("\n".join(broken))
    print(summary(mutations, survivors))
    if options.write:
        head = f"Command: `python benchmarks/mutations.py --write`\nMeasured {date.today()}.\n\n"
        results.write("mutations", head + table(mutations, survivors))
    return 1 if survivors or broken or stale else 0


def summary(mutations: Sequence[Mutation], survivors: Sequence[Mutation]) -> str:
    """In one line."""
    real = [one for one in mutations if not one.equivalent]
    found, same = len(real) - len(survivors), len(mutations) - len(real)
    return f"{found} of {len(real)} mutations are found ({found / max(1, len(real)):.0%}); {same} more change nothing that a test could see"


def table(mutations: Sequence[Mutation], survivors: Sequence[Mutation]) -> str:
    """By part of the product, and what survives."""
    parts = sorted({part(one) for one in mutations})
    rows = ["| part | mutations | found |", "| --- | --- | --- |"]
    for name in parts:
        of_part = [one for one in mutations if part(one) == name and not one.equivalent]
        rows.append(f"| `{name}` | {len(of_part)} | {sum(one not in survivors for one in of_part)} |")
    left = [f"- survives: {one.breaks} (`{one.file}`)" for one in survivors]
    same = [f"- equivalent: {one.breaks} (`{one.file}`): {one.equivalent}" for one in mutations if one.equivalent]
    return "\n".join([summary(mutations, survivors) + ".", "", *rows, "", *left, *same]).rstrip()


def part(mutation: Mutation) -> str:
    """The first two folders of its file."""
    return "/".join(Path(mutation.file).parent.parts[:2])


if __name__ == "__main__":
    sys.exit(main())
