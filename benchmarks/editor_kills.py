"""Kill what fine-tuning and the editor's benchmark are made of; the run must end with the files of an undisturbed one, byte for byte.

    python benchmarks/editor_kills.py --kills 20                         # about a quarter of an hour on two cores

On a cluster of two nodes on this machine, a command (the driver) encodes pairs for a tiny Step1X-Edit, trains three arms on two workers
each, lets the base and the arms edit a copy of GEdit-Bench, and has a server on loopback judge all edits. The kills (SIGKILL) are spread
evenly over these four phases; in each the victims take turns: the driver, which is started again with the same command; an actor that
encodes, edits or judges, or a worker of a training; while edits are judged, also the server. A moment is a number of finished units,
checkpoints or edits and a fraction of a second after it, both drawn with the seed. All kills hit one run directory, which is resumed each
time; where a phase ends before its kills are used up, another run begins. Compared are the files that the indexes list, the encoded pairs
and the kept replies of the judge. The server notes every question: a kill may cost no more than those that were in flight. Exits with 1
when a file differs or more was asked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # how soon a group notices that a worker died

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(SUPPORT)]

import gedit_copy  # noqa: E402  # ty: ignore[import-not-found]
from edit_shards import sharded_run  # noqa: E402  # ty: ignore[import-not-found]
from ray.cluster_utils import Cluster  # noqa: E402
from tiny_editing import drawn_images  # noqa: E402  # ty: ignore[import-not-found]
from tiny_step1x import write_step1x  # noqa: E402  # ty: ignore[import-not-found]

from benchmarks.filter_kills import Campaign, own_cluster  # noqa: E402
from benchmarks.killed_server import KilledServer  # noqa: E402
from stages.engine import storage  # noqa: E402
from stages.engine.rundir import RunDir  # noqa: E402

DRIVER = """
import sys
from pipeline.cli import main
for step in ("finetune", "evaluate-editor"):
    main(["run", step, *sys.argv[1:]], standalone_mode=False)
"""
SERVES = """
import hashlib, json, sys, time
from judge_server import scored, serving

def answer(body, before):
    number = int(hashlib.sha256(json.dumps(body).encode()).hexdigest(), 16)
    with open(sys.argv[3], "a") as traces:
        traces.write("asked\\n")
    time.sleep(float(sys.argv[2]))
    return scored(number % 11, number // 11 % 11)

with serving(answer, int(sys.argv[1])):
    time.sleep(1e6)
"""
PAIRS, UNIT_PAIRS, STEPS, CHECKPOINT_EVERY, ITEMS_PER_TASK, UNIT_ITEMS, CALLS_AT_ONCE = 48, 2, 30, 2, 6, 16, 4
ARMS = {"full": range(PAIRS), "selected": range(0, PAIRS, 2), "random": range(PAIRS // 3, PAIRS)}
SYSTEMS = len(ARMS) + 2  # the base, and the copy of the source
VICTIMS = {
    "encoding": ("actor", "driver"),
    "training": ("worker", "driver"),
    "editing": ("actor", "driver"),
    "judging": ("server", "actor", "driver"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a judge's reply")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/editor-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    options.runs.mkdir(parents=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    traces = (options.runs / "traces").absolute()
    server = KilledServer(SERVES, SUPPORT, options.seconds, traces)
    config = options.runs / "kills.yaml"
    config.write_text(json.dumps(configuration(options.runs.absolute(), server.address)))
    started = time.monotonic()
    try:
        with own_cluster(nodes=1) as cluster:
            differing = EditorCampaign(cluster, ["-c", DRIVER, "--config", str(config)], options, server).run()
    finally:
        server.end()
    runs = list(options.runs.glob("killed-*/"))
    asked, wanted = len(traces.read_text().splitlines()), sum(len(replies(run)) for run in [options.runs / "undisturbed", *runs])
    allowed = wanted + options.kills * CALLS_AT_ONCE
    seconds = time.monotonic() - started
    print(f"{options.kills} kills that hit a live process, {differing} of {len(runs)} runs differ, {seconds:.0f} s")
    print(f"{asked:,} questions asked, {wanted:,} wanted: {asked - wanted:,} again, at most {allowed - wanted:,} were in flight")
    return 1 if differing or not wanted <= asked <= allowed else 0


def configuration(folder: Path, server: str) -> dict[str, Any]:
    """Three arms of a tiny Step1X-Edit, and a copy of GEdit-Bench; writes their files."""
    (folder / "step1x").mkdir()
    editor = write_step1x(folder / "step1x")
    gedit_copy.write(folder / "gedit", gedit_copy.rows(ITEMS_PER_TASK, languages=("en",)))
    training = {
        "steps": STEPS,
        "batch_size": 4,
        "adapters": {"rank": 2, "alpha": 2},
        "pairs_per_pass": 2,
        "precision": "fp32",
        "activation_checkpointing": "none",
        "loader_workers": 0,
        "checkpoint_every": CHECKPOINT_EVERY,
        "ema_decay": 0.9,
        "progress": {"every": STEPS // 3, "pairs": 2, "samples": 1},
    }
    judge = {"name": "endpoint", "base_url": f"{server}/v1", "model": "judge-1", "concurrency": CALLS_AT_ONCE, "backoff": 0.2}
    return {
        "name": "kills",
        "world": {"size": 32},
        "filter": {
            "input": {"dataset": "world-edits", "count": PAIRS},
            "selections": [{"name": name, "rule": "all"} for name in ARMS],
        },
        "finetune": {
            "editor": editor.model_dump(mode="json"),
            "encode": {"unit_pairs": UNIT_PAIRS, "workers": 2},
            "training": training,
            "arms": list(ARMS),
            "workers": 2,
        },
        "evaluate_editor": {
            "items": {"name": "gedit-bench", "path": str(folder / "gedit")},
            "judge": judge,
            "bootstrap": 100,
            "workers": 2,
        },
    }


def replies(run: Path) -> dict[str, str]:
    """sha256 of the judge's replies that are kept, by their names."""
    return storage.tree_hashes(run / "evaluate-editor" / "replies")


class EditorCampaign(Campaign):
    """Kills of the steps finetune and evaluate-editor."""

    titles: ClassVar = {"actor": "ray::_Worker", "worker": "ray::RayTrainWorker"}
    step = "evaluate-editor"
    parts = "parts"

    def __init__(self, cluster: Cluster, command: list[str], options: argparse.Namespace, server: KilledServer) -> None:
        super().__init__(cluster, command, options)
        self.server = server

    def drawn(self, kills: int) -> list[str]:
        """The phases have equally many, or one more; their victims take turns."""
        phases = list(VICTIMS)
        found = [
            f"{victims[turn % len(victims)]} while {phase}"
            for number, (phase, victims) in enumerate(VICTIMS.items())
            for turn in range(kills // len(phases) + (number < kills % len(phases)))
        ]
        return found[::-1]

    def start(self, run: Path) -> subprocess.Popen[bytes]:
        """The command; the filter's shards of a new run are written first."""
        if not (run / "filter").exists():
            sharded_run(run, drawn_images(PAIRS), ARMS)
        return super().start(run)

    def hashes(self, run: Path) -> dict[str, str]:
        """Also of the encoded pairs, which no index lists, and of the judge's replies."""
        encoded = storage.tree_hashes(run / "finetune" / "units")
        return RunDir(run).artifact_hashes() | {f"finetune/units/{name}": sha256 for name, sha256 in encoded.items()} | replies(run)

    def next_victim(self, run: Path) -> int | None:
        """The next one of the phase that the run is in."""
        phase = self.phase(run)
        return next((number for number in reversed(range(len(self.victims))) if self.victims[number].endswith(phase)), None)

    def phase(self, run: Path) -> str:
        """What a run does, by its files."""
        if not (run / "finetune" / "index.json").exists():
            return "training" if (run / "finetune" / "pairs").exists() else "encoding"
        pieces = -(-ITEMS_PER_TASK * len(gedit_copy.TASKS) // UNIT_ITEMS)
        return "editing" if super().progress(run) < SYSTEMS * pieces else "judging"

    def progress(self, run: Path) -> int:
        """Finished units of both steps, checkpoints of the arm in work, and as many for an arm that is trained."""
        log = run / "finetune" / "units.jsonl"
        encoded = log.read_bytes().count(b"\n") if log.exists() else 0
        trained = len(list((run / "finetune" / "editors").glob("*/training.json"))) * STEPS // CHECKPOINT_EVERY
        steps = (path.name for path in (run / "finetune" / "checkpoints").glob("*/**/step-????????-*"))
        newest = max((int(name.split("-")[1]) // CHECKPOINT_EVERY for name in steps), default=0)
        return super().progress(run) + encoded + trained + newest

    def kill(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        """Whether there was one at work to kill, and it is gone."""
        victim = kind.split()[0]
        return self.server.kill() if victim == "server" else super().kill(victim, driver)


if __name__ == "__main__":
    sys.exit(main())
