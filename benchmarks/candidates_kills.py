"""Kill the driver while it reads rated pairs made elsewhere; what it ends with must be what an undisturbed run ends with, byte for byte.

    python benchmarks/candidates_kills.py --kills 12

A copy of EditReward-Data's layout is made of photographs. `pipeline run generate` makes candidates of it in two phases, reading and
writing; `pipeline annotate ingest` reads its ratings. Half of the kills (SIGKILL, the driver only) hit each command: generate at a random
moment after a random number of further units, ingest at a random moment of its time or after its first write. A command that ends before
its moment is compared like any other, and the kill is drawn again in the next run. Prints the state in which each kill left the run
directory; exits with 1 when any file differs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from photographs import edited_photographs, encoded  # noqa: E402  # ty: ignore[import-not-found]
from PIL import Image, ImageOps  # noqa: E402
from rated_pairs import FOLLOW, QUALITY, pairs_of, write_pairs  # noqa: E402  # ty: ignore[import-not-found]

from benchmarks.survive_kills import attempt, differences  # noqa: E402
from stages.engine.ids import uniform  # noqa: E402
from stages.engine.rundir import RunDir  # noqa: E402
from stages.engine.storage import TEMPORARY  # noqa: E402

PHOTOGRAPHS = 20
"""Crops that are unlike; more sources are these, turned and recoloured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--sources", type=int, default=240, help="source images, each with four edits and six pairs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/candidates-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    data = write_pairs(options.runs / "EditReward-Data", pairs_of(rated_edits(options.sources)))
    config = options.runs / "kills.yaml"
    made = {"candidates": {"dataset": "editreward-data", "path": str(data)}, "annotate": 12, "unit_sources": 60, "workers": 2}
    config.write_text(json.dumps({"name": "kills", "ray": {"dashboard": False, "object_store_mb": 100}, "generate": made}))
    commands = {
        "generate": ["run", "generate", "--config", str(config)],
        "ingest": ["annotate", "ingest", "--config", str(config), "--file", str(data)],
    }
    undisturbed, seconds = options.runs / "undisturbed", 0.0
    for command in commands.values():
        started = time.monotonic()
        attempt(command, undisturbed, None)
        seconds = time.monotonic() - started
    expected = RunDir(undisturbed).artifact_hashes()
    print(f"undisturbed: {state(undisturbed)}; {len(expected)} files; ingest {seconds:.1f} s", flush=True)
    moments = random.Random(options.seed)
    left = {"generate": options.kills - options.kills // 2, "ingest": options.kills // 2}
    number, differing = 0, 0
    while any(left.values()):
        run = options.runs / f"killed-{number}"
        for name, command in commands.items():
            for _ in range(min(3, left[name])):
                limit, begin = moment(moments, run, name, seconds)
                if attempt(command, run, limit, begin):
                    break
                left[name] -= 1
                print(f"{run.name}: {name} killed: {state(run)}", flush=True)
            attempt(command, run, None)
        wrong = differences(run, expected)
        differing += bool(wrong)
        print(f"{run.name} finished: " + (f"{len(wrong)} files differ, e.g. {wrong[:5]}" if wrong else "identical"), flush=True)
        number += 1
    print(f"{options.kills} kills, {differing} of {number} runs with differences")
    return 1 if differing else 0


def rated_edits(sources: int) -> list[dict[str, Any]]:
    """Four rated edits of each source, in the form of :func:`rated_pairs.rated_photographs`."""
    rows = []
    for number in range(sources):
        kind = number // PHOTOGRAPHS
        for row in edited_photographs(PHOTOGRAPHS)[4 * (number % PHOTOGRAPHS) :][:4] if kind == 0 else _changed(rows, number, kind):
            name = f"{row['editor']}/{number}-{row['seed']}.png"
            scores = {score: float(1 + int(4 * uniform(score, name))) for score in (FOLLOW, QUALITY)}
            rows.append({**row, "key": f"key-{number}", "img_rel": name, **scores})
    return rows


def _changed(rows: list[dict[str, Any]], number: int, kind: int) -> list[dict[str, Any]]:
    """The edits of an earlier photograph, with source and edits changed alike."""
    found = []
    for row in rows[4 * (number % PHOTOGRAPHS) :][:4]:
        images = {}
        for role in ("source", "edited"):
            image = Image.open(io.BytesIO(row[role])).convert("RGB").rotate(90 * (kind % 4))
            images[role] = encoded(ImageOps.posterize(image, 8 - kind // 4 % 6) if kind >= 4 else image)
        found.append({**row, **images})
    return found


def moment(moments: random.Random, run: Path, name: str, seconds: float) -> tuple[float, Callable[[], bool]]:
    """Seconds to a kill, and from when they count. seconds: what ingest takes undisturbed."""
    if name == "generate":
        target = len(units(run)) + moments.randrange(1, 5)
        return moments.uniform(0, 1), lambda: len(units(run)) >= target
    if moments.random() < 0.5:
        return moments.uniform(0, 0.2), (run / "annotate").exists
    return moments.uniform(0.4, 1.0) * seconds, lambda: True


def units(run: Path) -> list[str]:
    """Lines of the log of finished units."""
    log = run / "generate" / "units.jsonl"
    return [line for line in log.read_text().splitlines() if line.endswith("}")] if log.exists() else []


def state(run: Path) -> str:
    """What the run directory has: units of reading and writing, the published steps, batches of ratings, files not yet published."""
    if not run.is_dir():
        return "no run directory yet"
    done = units(run)
    read = sum('"delivered"' in line for line in done)
    published = [path.parent.name for path in sorted(run.glob("*/index.json"))]
    partial = sum(name.startswith(TEMPORARY) for _, folders, files in os.walk(run) for name in (*folders, *files))  # workers still rename
    return f"{read} units read, {len(done) - read} written; published: {', '.join(published) or 'nothing'}; {partial} files half written"


if __name__ == "__main__":
    sys.exit(main())
