"""The filter step with a model that sleeps on rows of real images: time per row and peak memory by phase, and time of a resume.

    python benchmarks/filter_end_to_end.py --images ../shared/data/triplets/triplets.jsonl --rows 100000

The rows name the files of the given triplets in turn, each with an instruction of its own. The driver's memory is the peak of its process
until a phase ended; Ray's own processes are not counted. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
CONFIGURATION = """\
name: end-to-end
filter:
  input: {{dataset: triplets, path: {rows}}}
  model: {model}
  selections:
    - {{name: best, rule: top, fraction: 0.43}}
  unit_rows: 500
"""
EVERY = 0.2
"""Seconds between two looks at the driver's memory."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="JSON Lines of triplets, with the images beside it")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="end-to-end-") as name:
        folder = Path(name)
        write_rows(options.images.absolute(), folder / "rows.jsonl", options.rows)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        (folder / "config.yaml").write_text(CONFIGURATION.format(rows=folder / "rows.jsonl", model=folder / "model"))
        print("| command | phase | seconds | ms per row | driver's peak, MB |\n| --- | --- | --- | --- | --- |")
        for title, more in (("run", []), ("resume", []), ("resume --verify", ["--verify"])):
            for phase, seconds, peak in measured(folder, more):
                print(f"| {title} | {phase} | {seconds:.1f} | {seconds / options.rows * 1e3:.3f} | {peak / 1e6:.0f} |", flush=True)
    return 0


def write_rows(triplets: Path, path: Path, count: int) -> None:
    known = [json.loads(line) for line in triplets.read_text(encoding="utf-8").splitlines()]
    with open(path, "w", encoding="utf-8") as file:
        for number, row in enumerate(islice(cycle(known), count)):
            paths = {"source": row["source"], "edited": row["candidate"] if "candidate" in row else row["edited"]}
            images = {name: str(triplets.parent / path) for name, path in paths.items()}
            file.write(json.dumps({**images, "instruction": f"{row['instruction']} ({number})"}) + "\n")


def measured(folder: Path, more: list[str]) -> list[tuple[str, float, int]]:
    """Phases of a command with their seconds and the driver's highest memory in bytes until then. A phase ends where the next one shows."""
    command = [sys.executable, str(HERE / "sleeping_filter.py"), "run", "filter", "--config", str(folder / "config.yaml")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    command += ["--run", str(folder / "run"), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    peak = [0]
    threading.Thread(target=_watch, args=(process.pid, peak), daemon=True).start()
    found: list[tuple[str, float, int]] = []
    begin, phase, said = time.monotonic(), "start and plan", ""
    for line in process.stdout:
        said += line
        named = re.match(r"filter: (inspect|score|write shards)", line.strip())
        if named and named[1] != phase:
            found.append((phase, time.monotonic() - begin, peak[0]))
            begin, phase = time.monotonic(), named[1]
    if process.wait():
        raise SystemExit(said)
    return [*found, (phase if found else "all", time.monotonic() - begin, peak[0])]


def _watch(process: int, peak: list[int]) -> None:
    try:
        while True:
            peak[0] = max(peak[0], psutil.Process(process).memory_info().rss)
            time.sleep(EVERY)
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main())
