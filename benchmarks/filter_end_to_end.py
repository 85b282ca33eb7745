"""The filter step with a model that sleeps on rows of real images: wall time per row and the driver's memory by phase, and of a resume.

    python benchmarks/filter_end_to_end.py --images ../shared/data/triplets/triplets.jsonl --rows 100000

The images of the given triplets are reduced to ``--side`` pixels once; the rows name them in turn, each with an instruction of its own. A
gate that compares edits drops, so that scoring begins when inspection has ended: elsewhere they run side by side. Memory is the highest
of the driver within a phase; Ray's own processes are not counted. Prints Markdown. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from PIL import Image

from benchmarks import sleeping_filter
from benchmarks.driver_memory import Figures
from pipeline.cli import main as pipeline
from stages.datasets import readers
from stages.filter import decontamination, examples, inspection, scored, shard_sets, summary
from stages.filter import scoring as edit_scoring
from stages.filter import step as filter
from stages.filter.selection import stored

CONFIGURATION = """\
name: end-to-end
filter:
  input: {{dataset: triplets, path: {rows}}}
  model: {model}
  gates: {{near_duplicate: {{action: drop}}}}
  selections:
    - {{name: best, rule: top, fraction: 0.43}}
  unit_rows: 500
"""
PHASES = {
    "plan": [(readers, "plan")],
    "inspect": [(filter, "_inspected")],
    "score": [(edit_scoring.Scoring, "rest")],
    "decide and select": [
        (inspection, "decide"), (decontamination, "check"), (scored, "assemble"), (stored, "publish"), (examples, "publish"),
        (summary, "of"), (shard_sets, "assign"),
    ],
    "shards": [(shard_sets, "write")],
}  # fmt: skip
"""The functions whose calls make a phase; none of them is called within another."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="JSON Lines of triplets, with the images beside it")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=128, help="pixels of the images' longer side")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command:
        return measured(options.command, options.rows)
    with tempfile.TemporaryDirectory(prefix="end-to-end-") as name:
        folder = Path(name)
        write_rows(options.images.absolute(), folder, options.rows, options.side)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        (folder / "config.yaml").write_text(CONFIGURATION.format(rows=folder / "rows.jsonl", model=folder / "model"))
        print("| command | phase | seconds | ms per row | driver's highest, MB |\n| --- | --- | --- | --- | --- |", flush=True)
        run = ["run", "filter", "--config", str(folder / "config.yaml"), "--run", str(folder / "run")]
        for more in ([], [], ["--verify"]):
            command = [sys.executable, __file__, *sys.argv[1:], "--command", *run, *more]
            made = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, check=True)
            print(made.stdout.decode().rpartition("\f")[2], end="", flush=True)
    return 0


def measured(command: list[str], rows: int) -> int:
    """Run a command of the pipeline and print its phases, after what it prints itself and a form feed."""
    setattr(edit_scoring, "make_scoring", sleeping_filter.make_scoring)  # noqa: B010
    figures = {phase: Figures() for phase in PHASES}
    for phase, functions in PHASES.items():
        for where, name in functions:
            setattr(where, name, figures[phase].watching(getattr(where, name)))
    rest, begun = Figures(), time.monotonic()
    failed = pipeline.main(command, standalone_mode=False) or 0
    rest.wall = time.monotonic() - begun - sum(found.wall for found in figures.values())
    title = "run" if figures["score"].wall else " ".join(["again", *command[6:]])
    print("\f", end="")
    for phase, found in [*figures.items(), ("rest: start, checks, index", rest)]:
        if found.wall:
            highest = f"{found.highest / 1e6:.0f}" if found.highest else ""
            print(f"| {title} | {phase} | {found.wall:.1f} | {found.wall / rows * 1e3:.3f} | {highest} |")
    return failed


def write_rows(triplets: Path, folder: Path, count: int, side: int) -> None:
    """``rows.jsonl`` and its images in a folder."""
    known = [json.loads(line) for line in triplets.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(known):
        for name, path in (("source", row["source"]), ("edited", row["candidate"] if "candidate" in row else row["edited"])):
            with Image.open(triplets.parent / path) as image:
                image.thumbnail((side, side))
                image.convert("RGB").save(folder / f"{number}_{name}.jpg")
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
        for number, (place, row) in enumerate(islice(cycle(enumerate(known)), count)):
            images = {name: f"{place}_{name}.jpg" for name in ("source", "edited")}
            file.write(json.dumps({**images, "instruction": f"{row['instruction']} ({number})"}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
