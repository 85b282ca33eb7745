"""Kill the driver of the whole loop again and again; what it ends with must be what an undisturbed run ends with, byte for byte.

    python benchmarks/survive_kills.py --config configs/demo-small.yaml --kills 10

An attempt is killed (SIGKILL, the driver only: Ray's processes are left to notice) after a random part of the undisturbed run's time and
started again with the same command. A run that finishes is compared file by file and a new one is begun until the kills are used up.
Prints where each kill hit; exits with 1 when any artifact differs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stages.engine.rundir import RunDir


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    shutil.rmtree(options.runs, ignore_errors=True)
    options.runs.mkdir(parents=True)
    whole_loop = ["run", "all", "--config", str(options.config)]
    started = time.monotonic()
    attempt(whole_loop, options.runs / "undisturbed", None)
    whole = time.monotonic() - started
    expected = RunDir(options.runs / "undisturbed").artifact_hashes()
    print(f"undisturbed: {whole:.0f} s, {len(expected)} files", flush=True)
    moments = random.Random(options.seed)
    kills, finished, differing = 0, 0, 0
    while kills < options.kills or finished == 0:
        run = options.runs / f"killed-{finished}"
        limit = moments.uniform(0.05, 0.6) * whole if kills < options.kills else None
        if attempt(whole_loop, run, limit):
            finished += 1
            wrong = differences(run, expected)
            differing += bool(wrong)
            print(f"{run.name} finished: " + (f"{len(wrong)} files differ, e.g. {wrong[:5]}" if wrong else "identical"), flush=True)
        else:
            kills += 1
            print(f"kill {kills}: {run.name} after {limit:.0f} s, in {newest_step(run)}", flush=True)
    if (options.runs / f"killed-{finished}").exists():
        attempt(whole_loop, options.runs / f"killed-{finished}", None)
        same = not differences(options.runs / f"killed-{finished}", expected)
        differing += not same
        print(f"killed-{finished} finished: {'identical' if same else 'files differ'}", flush=True)
    print(f"{kills} kills, {differing} runs with differences")
    return 1 if differing else 0


def attempt(arguments: Sequence[str], run: Path, limit: float | None, begin: Callable[[], bool] = lambda: True) -> bool:
    """Run a command of `pipeline`; True when it finished, False when it was killed. A failure of its own ends the benchmark.

    limit: seconds to the kill, from when ``begin`` is true; None kills nothing.
    """
    command = [sys.executable, "-m", "pipeline.cli", *arguments, "--run", str(run)]
    with open(run.with_suffix(".log"), "a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while limit is not None and process.poll() is None and not begin():
            time.sleep(0.005)
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return False
    if code:
        raise SystemExit(f"{' '.join(arguments)} failed with {code}; see {run.with_suffix('.log')}")
    return True


def differences(run: Path, expected: Mapping[str, str]) -> list[str]:
    """The artifact files of a run that differ from the expected hashes."""
    found = RunDir(run).artifact_hashes()
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def newest_step(run: Path) -> str:
    """The step that was being worked on."""
    steps = [path for path in run.iterdir() if path.is_dir()] if run.is_dir() else []
    return max(steps, key=lambda path: path.stat().st_mtime).name if steps else "start-up"


if __name__ == "__main__":
    sys.exit(main())
