"""What the step generate adds to the time of its editors.

    python -m benchmarks.generate_overhead --edits 480                   # about fourteen minutes

An editor sleeps half a second per edit. Sources are pictures of 512 x 512 pixels. With one, two and four workers, the step's wall time
on a running cluster is compared with the sleeping alone: edits x 0.5 s / workers. It contains the start of the processes, reading,
checking, encoding and writing, and the end, when workers that have finished wait for the others: at most a unit, of 12 edits here. Start
and end cost the same however long a run is, so runs of four minutes are the least that tells about runs of hours. Beside it stand what
does not depend on them: the share of their time for which the loaded editors had nothing to edit, and the processor time per candidate.
Writes the table into benchmarks/RESULTS.md between its markers, with the load of the machine; exits with 1 above five per cent.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGGED = ROOT / "tests" / "support" / "plugged"
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [ROOT, PLUGGED, os.environ.get("PYTHONPATH", "")]))
sys.path.insert(0, str(PLUGGED))

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

from benchmarks import results  # noqa: E402
from stages.config import FlowConfig  # noqa: E402
from stages.context import Context  # noqa: E402
from stages.engine import unit_log  # noqa: E402
from stages.engine.cluster import Cluster  # noqa: E402
from stages.engine.config import RayConfig  # noqa: E402
from stages.engine.rundir import RunDir  # noqa: E402
from stages.generate import step  # noqa: E402

SIDE, SECONDS, MOST = 512, 0.5, 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--edits", type=int, default=480, help="per worker")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    lines = ["| workers | edits | asleep | wall | overhead | editors wait | CPU per candidate | load |", "| --- " * 8 + "|"]
    worst = 0.0
    cluster = Cluster(RayConfig(dashboard=False, num_cpus=max(options.workers) + 1))
    cluster.connect()
    for workers in options.workers:
        edits = options.edits * workers
        asleep, (wall, waiting, cpu) = edits * SECONDS / workers, measure(cluster, workers, edits)
        worst = max(worst, wall / asleep - 1)
        figures = f"{wall / asleep - 1:.1%} | {waiting:.1%} | {1000 * cpu:.0f} ms | {os.getloadavg()[0]:.0f}"
        lines.append(f"| {workers} | {edits} | {asleep:.1f} s | {wall:.1f} s | {figures} |")
        print(lines[-1], flush=True)
    cluster.close()
    text = "\n".join(
        [
            f"Command: `python -m benchmarks.generate_overhead --edits {options.edits}`",
            f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}.",
            "Load: of the last minute, this benchmark included; above the number of cores, processes wait for each other.",
            "",
            *lines,
        ]
    )
    if options.write:
        results.write("generate-overhead", text)
    return 1 if worst > MOST else 0


def measure(cluster: Cluster, workers: int, edits: int) -> tuple[float, float, float]:
    """Wall seconds of the step, share of time that the editors wait, and CPU seconds of their processes per candidate."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        rows = []
        for number in range(edits // 12):
            draw = np.random.default_rng(number)
            coarse = Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            coarse.resize((SIDE, SIDE)).save(path / f"{number}.jpg", quality=90)
            rows.append(json.dumps({"image": f"{number}.jpg", "instruction": f"edit number {number}"}))
        (path / "sources.jsonl").write_text("\n".join(rows))
        settings = {"seconds": SECONDS}
        flow = {
            "name": "overhead",
            "generate": {
                "sources": {"dataset": "table", "tables": [{"name": "mine", "path": str(path / "sources.jsonl")}]},
                "editors": [{"name": "odd/plain", "candidates": 12, "settings": settings}],
                "workers": workers,
            },
        }
        context = Context(RunDir(path / "run"), FlowConfig.model_validate(flow), cluster)
        started = time.monotonic()
        index = step.run(context)
        wall = time.monotonic() - started
        assert index.artifacts["candidates"] and index.results["failed_candidates"] == 0
        figures = [record.figures for record in unit_log.sound(context.run.step(step.STEP)).values() if "cpu" in record.figures]
        total = {name: sum(of_unit[name] for of_unit in figures) for name in ("waiting", "seconds", "cpu")}
        return wall, total["waiting"] / (total["waiting"] + total["seconds"]), total["cpu"] / edits


if __name__ == "__main__":
    sys.exit(main())
