"""RESULTS.md: each benchmark that writes its tables there has a part of its own between two markers.

    python benchmarks/results.py

names the sections that are older than the code they measure: for each the commit that wrote its newest figures, and how many later commits
changed that code. Such a section may still hold; nobody has looked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")
WHOLE = ("stages", "reward", "finetune", "configs")
MEASURES = {
    "Effect of the loop on the toy world": WHOLE,
    "Answers to sceptics of the toy experiment": WHOLE,
    "Ablations on the toy world": ("stages/world", "stages/preferences", "reward", "configs/ablations"),
    "Objectives": ("stages/world", "stages/annotate/simulate.py", "stages/preferences", "reward"),
    "Two images on the toy world": ("stages/world", "stages/preferences", "reward", "configs/demo-images.yaml"),
    "Cost of the reward model against the public layout": ("reward/inputs", "reward/model", "reward/inference", "reward/training"),
    "Loading a model": ("reward/model", "reward/trainer/sharding.py"),
    "Feeding a training with images": ("reward/inputs", "reward/trainer", "reward/training"),
    "Rehearsal of the paper's training": ("reward/rehearsal", "reward/model", "reward/training", "configs/paper.yaml"),
    "Kills": ("stages", "reward/trainer", "finetune"),
    "Cost of the demo": WHOLE,
    "Gates of the filter on planted defects": ("stages/filter/gates", "stages/filter/pair.py", "stages/filter/decide.py"),
    "Readers and references": ("stages/datasets", "stages/contamination"),
    "Selections from many scores": ("stages/filter/selection",),
    "Choosing what to annotate next": ("stages/annotate/active", "stages/world", "reward"),
    "Speed of ratings": ("stages/annotate/ratings", "stages/annotate/formats", "stages/annotate/agreement"),
    "Rating page at the size of the paper": ("stages/annotate/page", "stages/annotate/packet", "stages/annotate/quality"),
    "Quality control of ratings": ("stages/annotate/quality", "stages/annotate/agreement"),
    "Overhead of generate": ("stages/engine", "stages/generate", "stages/editors"),
    "Overhead of the filter": ("stages/engine", "stages/filter", "stages/scoring"),
    "The filter from end to end": ("stages/datasets", "stages/engine", "stages/filter", "stages/scoring", "stages/shards"),
    "Speed of shards": ("stages/shards", "stages/engine/storage.py", "stages/engine/tar.py"),
    "Decisions of the filter": ("stages/filter/decide.py", "stages/filter/gates", "stages/contamination", "stages/filter/scored.py"),
    "One driver": ("stages/engine", "stages/datasets", "stages/filter"),
    "Tests that can fail": ("stages", "reward", "finetune", "tests"),
}
"""Per section the files and folders whose change may change its figures."""


def write(part: str, text: str) -> None:
    """Replace the part of this name; the commit of the code is added."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, rest = RESULTS.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    changed = " with local changes" if _git("status", "--porcelain", "--", *WHOLE) else ""
    code = f"Code: commit {_git('rev-parse', '--short', 'HEAD')}{changed}."
    RESULTS.write_text(f"{before}{begin}\n{text}\n\n{code}\n{end}{after}", encoding="utf-8")


def sections() -> dict[str, tuple[int, int]]:
    """First and last line of each section, counted from 1."""
    lines = RESULTS.read_text(encoding="utf-8").split("\n")
    starts = [number for number, line in enumerate(lines, start=1) if line.startswith("## ")]
    return {lines[first - 1][3:]: (first, last - 1) for first, last in zip(starts, [*starts[1:], len(lines) + 1], strict=True)}


def newest(first: int, last: int) -> str:
    """The newest commit that wrote a row of a table, or a line with the command, between two lines."""
    blamed = _git("blame", "--line-porcelain", "-L", f"{first},{last}", "--", str(RESULTS.relative_to(ROOT)))
    found = re.findall(r"^([0-9a-f]{40}) .*?^committer-time (\d+)$.*?^\t(.*?)$", blamed, re.MULTILINE | re.DOTALL)
    return max((int(time), commit) for commit, time, line in found if line.startswith(("|", "Command", "Code")))[1]


def main() -> int:
    for name, (first, last) in sections().items():
        commit = newest(first, last)
        if not commit.strip("0"):  # git's name of what is only in the file
            print(f"{name}: changed since the last commit")
            continue
        later = _git("log", "--oneline", f"{commit}..HEAD", "--", *MEASURES[name]).splitlines()
        state = f"{len(later)} later commits changed {', '.join(MEASURES[name])}" if later else "up to date"
        print(f"{name}: written at {commit[:7]}; {state}")
    return 0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
