"""Kill what the filter step is made of, again and again; its shards must be those of an undisturbed run, byte for byte.

    python benchmarks/filter_kills.py --kills 20                         # about ten minutes on two cores
    python benchmarks/filter_kills.py --kills 20 --sleeping              # about two; the tests run four kills so

On a cluster of three nodes on this machine, a command (the driver) filters drawn edits with a tiny random model, two scoring actors and
tasks that prepare. At random moments one of them gets SIGKILL: the driver, which is then started again with the same command; a worker
(one that inspects, scores, or writes shards later on); a task that prepares; or a whole node, which another one replaces. A moment is a
number of finished units and a fraction of a second after it, both drawn with the seed. Every four kills are one of each kind. A kill counts
when its victim was alive before and is gone after it while the run is not finished. A run that ends is compared with the undisturbed
one, and the next begins until the kills are used up. With --sleeping the model sleeps instead of computing
(benchmarks/sleeping_filter.py). Exits with 1 when a file differs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import psutil
from ray.cluster_utils import Cluster

from stages.engine.rundir import RunDir

HERE = Path(__file__).resolve().parent
KINDS = ("driver", "actor", "preparation", "node")
TITLES = {"actor": "ray::_Worker", "preparation": "ray::_task"}
UNIT_ROWS = 8
PATIENCE = 120.0
"""Seconds to wait for a victim to show itself, or for the next unit."""
CONFIGURATION = """\
name: kills
world: {{size: 32, kinds: [recolour, remove]}}
filter:
  input: {{dataset: world-edits, count: {edits}}}
  model: {model}
  selections:
    - {{name: best, rule: top, fraction: 0.4}}
    - {{name: full, rule: all}}
  shards: {{samples_per_shard: 50}}
  unit_rows: {unit_rows}
  workers: 2
  prepare_workers: 1
  inspect_workers: 2
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--edits", type=int, default=480)
    parser.add_argument("--seed", type=int, default=0, help="seed of the victims and the moments")
    parser.add_argument("--sleeping", action="store_true", help="a model that sleeps instead of computing")
    parser.add_argument("--runs", type=Path, default=Path("runs/filter-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    options.runs.mkdir(parents=True)
    config = options.runs / "kills.yaml"
    model = save_model(options.runs / "model", sleeping=options.sleeping)
    config.write_text(CONFIGURATION.format(edits=options.edits, model=model, unit_rows=UNIT_ROWS))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    started = time.monotonic()
    command = [str(HERE / "sleeping_filter.py")] if options.sleeping else ["-m", "pipeline.cli"]
    with own_cluster(nodes=2) as cluster:
        differing = Campaign(cluster, [*command, "run", "filter", "--config", str(config)], options).run()
    print(f"{options.kills} kills that hit a live process, {differing} runs with differences, {time.monotonic() - started:.0f} s")
    return 1 if differing else 0


@contextmanager
def own_cluster(nodes: int) -> Generator[Cluster]:
    """A cluster of a head and so many nodes that work. Its address is in a folder of its own, so that no other ``ray.init`` joins it."""
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp", ignore_cleanup_errors=True) as sockets:  # paths of sockets must be short
        os.environ["RAY_TMPDIR"] = sockets
        head = {"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes):
                add_node(cluster)
            yield cluster
        finally:
            cluster.shutdown()


def save_model(path: Path, *, sleeping: bool) -> Path:
    """A random model; or a folder with the name of one, where nothing reads it."""
    if sleeping:
        path.mkdir()
        (path / "config.json").write_text("{}")
    else:
        from reward import RewardModel, RewardModelConfig

        RewardModel.from_config(RewardModelConfig(), ["make the red circle blue", "remove the green square"]).save(path)
    return path.absolute()


def add_node(cluster: Cluster) -> None:
    cluster.add_node(num_cpus=3, object_store_memory=100 << 20)


class Campaign:
    """Runs of a step and kills until the kills are used up."""

    kinds = KINDS
    titles: ClassVar = TITLES
    step = "filter"
    parts = "units"

    def __init__(self, cluster: Cluster, command: list[str], options: argparse.Namespace) -> None:
        self.cluster, self.command, self.runs = cluster, command, options.runs
        self.draw = random.Random(options.seed)
        self.victims = self.drawn(options.kills)

    def drawn(self, kills: int) -> list[str]:
        """Kinds of the victims; the last one is killed first."""
        found: list[str] = []
        while len(found) < kills:
            found += self.draw.sample(self.kinds, len(self.kinds))
        return found[:kills]

    def run(self) -> int:
        """Number of runs that differ from the undisturbed one."""
        undisturbed = self.runs / "undisturbed"
        self.finish(self.start(undisturbed), undisturbed)
        expected = self.hashes(undisturbed)
        print(f"undisturbed: {len(expected)} files", flush=True)
        differing, number = 0, 0
        while self.victims:
            run = self.runs / f"killed-{number}"
            hits = self.disturbed(run)
            found = self.hashes(run)
            wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            differing += bool(wrong)
            number += 1
            what = f"{len(wrong)} files differ, e.g. {wrong[:5]}" if wrong else "identical"
            print(f"{run.name}: {', '.join(hits)}: {what}", flush=True)
        return differing

    def disturbed(self, run: Path) -> list[str]:
        """One run to its end, with as many kills as it takes; says which, and after how many units."""
        index = run / self.step / "index.json"
        hits: list[str] = []
        driver = self.start(run)
        while self.victims:
            target = self.progress(run) + self.draw.randrange(1, 5)
            pause = self.draw.uniform(0.0, 0.3)
            while driver.poll() is None and self.progress(run) < target and not index.exists():
                time.sleep(0.01)
            time.sleep(pause)
            if driver.poll() is not None or index.exists():
                break
            number = self.next_victim(run)
            if number is None or not self.kill(kind := self.victims[number], driver):
                continue  # it was between two tasks
            if not index.exists():  # otherwise the run was finished just before
                del self.victims[number]
                hits.append(f"{kind} after {self.progress(run)} {self.parts}")
            if kind.startswith("driver"):
                driver = self.start(run)
        self.finish(driver, run)
        return hits

    def hashes(self, run: Path) -> dict[str, str]:
        """sha256 of every file that must be equal."""
        return RunDir(run).artifact_hashes()

    def next_victim(self, run: Path) -> int | None:
        """Which of the victims is killed now; None: none of them is at work."""
        return len(self.victims) - 1

    def progress(self, run: Path) -> int:
        """Finished units."""
        log = run / self.step / "units.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def kill(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        """Whether there was one to kill, and it is gone."""
        if kind == "driver":
            alive = driver.poll() is None
            driver.kill()
            return driver.wait() == -signal.SIGKILL and alive
        if kind == "node":
            victim = self.draw.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id))
            raylet = psutil.Process(victim.all_processes["raylet"][0].process.pid)
            alive = raylet.is_running()
            self.cluster.remove_node(victim, allow_graceful=False)
            add_node(self.cluster)
            return alive and not raylet.is_running()
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up and driver.poll() is None:
            for victim in self.draw.sample(found := self.processes(self.titles[kind]), len(found)):
                with suppress(psutil.NoSuchProcess):  # it ended by itself
                    victim.kill()  # checks that the id is still that of this process
                    victim.wait(PATIENCE)
                    return True
            time.sleep(0.002)
        return False

    def processes(self, title: str) -> list[psutil.Process]:
        """This cluster's workers with a title."""
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.cluster.worker_nodes if "raylet" in node.all_processes]
        found = []
        for raylet in raylets:
            with suppress(psutil.Error):
                children = psutil.Process(raylet).children(recursive=True)
                found += [child for child in children if " ".join(child.cmdline()).startswith(title)]
        return sorted(found, key=lambda process: process.pid)

    def start(self, run: Path) -> subprocess.Popen[bytes]:
        """The command, in a process of its own."""
        with open(run.with_suffix(".log"), "ab") as log:
            command = [sys.executable, *self.command, "--run", str(run), "--address", self.cluster.address]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def finish(self, process: subprocess.Popen[bytes], run: Path) -> None:
        """Wait for a command that must succeed."""
        code = process.wait()
        if code:
            raise SystemExit(f"the command failed with {code}; see {run.with_suffix('.log')}")


if __name__ == "__main__":
    sys.exit(main())
