"""Kill what the generate step is made of, again and again; its tables must be those of an undisturbed run, byte for byte.

    python benchmarks/generate_kills.py --kills 20                       # about six minutes on two cores

On a cluster of three nodes on this machine, a command (the driver) has two editors edit small pictures, in batches, on two actors. At
random moments one of them gets SIGKILL: the driver, which is then started again with the same command; an actor; or a whole node, which
another one replaces (benchmarks/filter_kills.py has the rules). The editors note every edit that they make: a kill may cost no more than
what was in work, a batch that is edited and one that is being written per process. Exits with 1 when a file differs or more was made.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from PIL import Image
from ray.cluster_utils import Cluster

from benchmarks.filter_kills import Campaign, add_node

ROOT = Path(__file__).resolve().parents[1]
PLUGGED = ROOT / "tests" / "support" / "plugged"
WORKERS, BATCH = 2, 2
IN_WORK = 2 * BATCH
"""Edits that a process may have in work: a batch that is edited, and one that is being written."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sources", type=int, default=60, help="each with six candidates by either editor")
    parser.add_argument("--seconds", type=float, default=0.05, help="of an edit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the victims and the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/generate-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    options.runs.mkdir(parents=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [ROOT, PLUGGED, os.environ.get("PYTHONPATH", "")]))
    traces = (options.runs / "traces").absolute()
    config = options.runs / "kills.yaml"
    config.write_text(json.dumps(configuration(options, traces)))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp", ignore_cleanup_errors=True) as sockets:  # paths of sockets must be short
        os.environ["RAY_TMPDIR"] = sockets  # where the cluster's address is noted, so that nobody else's ``ray.init`` joins it
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
        )
        try:
            for _ in range(2):
                add_node(cluster)
            command = ["-m", "pipeline.cli", "run", "generate", "--config", str(config)]
            campaign = GenerateCampaign(cluster, command, options)
            differing = campaign.run()
        finally:
            cluster.shutdown()
    runs = len(list(options.runs.glob("killed-*/")))
    made, wanted = len(traces.read_text().splitlines()), (runs + 1) * options.sources * 12
    allowed = wanted + options.kills * WORKERS * IN_WORK
    print(f"{options.kills} kills that hit a live process, {differing} of {runs} runs with differences, {time.monotonic() - started:.0f} s")
    print(f"{made:,} edits made, {wanted:,} wanted: {made - wanted:,} again, at most {allowed - wanted:,} were in work")
    return 1 if differing or not wanted <= made <= allowed else 0


def configuration(options: argparse.Namespace, traces: Path) -> dict[str, object]:
    """Two editors of tests/support/plugged, whose edits take so many seconds."""
    draw = random.Random(0)
    rows = []
    for number in range(options.sources):
        picture = Image.linear_gradient("L").resize((96, 64)).rotate(draw.uniform(0, 360))
        picture.convert("RGB").save(options.runs / f"{number}.png")
        rows.append(json.dumps({"image": f"{number}.png", "instruction": f"edit number {number}"}))
    (options.runs / "sources.jsonl").write_text("\n".join(rows))
    settings = {"seconds": options.seconds, "traces": str(traces)}
    return {
        "name": "kills",
        "generate": {
            "sources": {"dataset": "table", "tables": [{"name": "mine", "path": str((options.runs / "sources.jsonl").absolute())}]},
            "editors": [{"name": name, "settings": settings} for name in ("odd/plain", "odd/other")],
            "unit_sources": 10,
            "workers": WORKERS,
        },
    }


class GenerateCampaign(Campaign):
    """Kills of the step generate."""

    kinds = ("driver", "actor", "node")
    step = "generate"
    parts = "units and batches"

    def progress(self, run: Path) -> int:
        """Finished units and batches."""
        return super().progress(run) + len(list((run / self.step / "unfinished").glob("*/*.parquet")))


if __name__ == "__main__":
    sys.exit(main())
