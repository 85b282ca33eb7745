"""Kill what the generate step is made of, again and again; its tables must be those of an undisturbed run, byte for byte.

    python benchmarks/generate_kills.py --kills 20                       # about ten minutes on two cores

On a cluster of three nodes on this machine, a command (the driver) has three editors edit small pictures on two actors: one inside the
actor, one in a process of its own, and one behind a server on loopback. At random moments one of them gets SIGKILL: the driver, which is
then started again with the same command; an actor; the process of an editor; the server, which is started again; or a whole node, which
another one replaces (benchmarks/filter_kills.py has the rules). A process and a server are killed while they edit. The editors note every
edit that they make: a kill may cost no more than what was in work, a batch that is edited and one that is being written per actor. Exits
with 1 when a file differs or more was made.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import psutil
from PIL import Image
from ray.cluster_utils import Cluster

from benchmarks.filter_kills import PATIENCE, Campaign, own_cluster
from benchmarks.killed_server import KilledServer

ROOT = Path(__file__).resolve().parents[1]
PLUGGED = ROOT / "tests" / "support" / "plugged"
SERVERS = ROOT / "tests" / "editors" / "http"
SERVES = """
import sys, time
from edits_server import Script, serving
with serving(Script(model="odd", seconds=float(sys.argv[2]), traces=sys.argv[3]), int(sys.argv[1])):
    time.sleep(1e6)
"""
WORKERS, BATCH, PER_SOURCE = 2, 2, 12
IN_WORK = 2 * BATCH
"""Edits that a process may have in work: a batch that is edited, and one that is being written."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sources", type=int, default=60, help="each with four candidates by each editor")
    parser.add_argument("--seconds", type=float, default=0.05, help="of an edit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the victims and the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/generate-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    options.runs.mkdir(parents=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [ROOT, PLUGGED, os.environ.get("PYTHONPATH", "")]))
    traces = (options.runs / "traces").absolute()
    config = options.runs / "kills.yaml"
    server = KilledServer(SERVES, SERVERS, options.seconds, traces)
    config.write_text(json.dumps(configuration(options, traces, server.address)))
    started = time.monotonic()
    command = ["-m", "pipeline.cli", "run", "generate", "--config", str(config)]
    try:
        with own_cluster(nodes=2) as cluster:
            differing = GenerateCampaign(cluster, command, options, server).run()
    finally:
        server.end()
    runs = len(list(options.runs.glob("killed-*/")))
    made, wanted = len(traces.read_text().splitlines()), (runs + 1) * options.sources * PER_SOURCE
    allowed = wanted + options.kills * WORKERS * IN_WORK
    print(f"{options.kills} kills that hit a live process, {differing} of {runs} runs with differences, {time.monotonic() - started:.0f} s")
    print(f"{made:,} edits made, {wanted:,} wanted: {made - wanted:,} again, at most {allowed - wanted:,} were in work")
    return 1 if differing or not wanted <= made <= allowed else 0


def configuration(options: argparse.Namespace, traces: Path, server: str) -> dict[str, object]:
    """Three editors of tests/support/plugged, whose edits take so many seconds."""
    draw = random.Random(0)
    rows = []
    for number in range(options.sources):
        picture = Image.linear_gradient("L").resize((96, 64)).rotate(draw.uniform(0, 360))
        picture.convert("RGB").save(options.runs / f"{number}.png")
        rows.append(json.dumps({"image": f"{number}.png", "instruction": f"edit number {number}"}))
    (options.runs / "sources.jsonl").write_text("\n".join(rows))
    settings = {"seconds": options.seconds, "traces": str(traces)}
    editors = [
        {"name": "odd/plain", "settings": settings},
        {"name": "odd/process", "settings": settings | {"python": sys.executable, "weights": str(options.runs.absolute())}},
        {"name": "odd/http", "settings": {"base_url": server, "pause_seconds": 0.2, "tries": 10}},
    ]
    return {
        "name": "kills",
        "generate": {
            "sources": {"dataset": "table", "tables": [{"name": "mine", "path": str((options.runs / "sources.jsonl").absolute())}]},
            "editors": editors,
            "candidates_per_source": PER_SOURCE,
            "unit_sources": 10,
            "workers": WORKERS,
        },
    }


class GenerateCampaign(Campaign):
    """Kills of the step generate."""

    kinds = ("driver", "actor", "process", "server", "node")
    step = "generate"
    parts = "units and batches"

    def __init__(self, cluster: Cluster, command: list[str], options: argparse.Namespace, server: KilledServer) -> None:
        super().__init__(cluster, command, options)
        self.server = server

    def progress(self, run: Path) -> int:
        """Finished units and batches; the folder of a unit may go while it is counted."""
        batches = (name for _, _, names in os.walk(run / self.step / "unfinished") for name in names if name.endswith(".parquet"))
        return super().progress(run) + sum(1 for _ in batches)

    def kill(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        """Whether there was one at work to kill, and it is gone."""
        if kind == "process":
            for victim in self.draw.sample(found := self._bridges(), len(found)):
                with suppress(psutil.NoSuchProcess):  # it ended by itself
                    victim.kill()
                    victim.wait(PATIENCE)
                    return True
            return False
        if kind == "server":
            return self.server.kill()
        return super().kill(kind, driver)

    def _bridges(self) -> list[psutil.Process]:
        """The processes of editors, of this cluster's actors."""
        found = []
        for actor in self.processes("ray::_Worker"):
            with suppress(psutil.Error):  # it ended meanwhile
                found += [child for child in actor.children() if "striped_bridge.py" in " ".join(child.cmdline())]
        return found


if __name__ == "__main__":
    sys.exit(main())
