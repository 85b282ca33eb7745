"""Wall time and peak memory of a command with everything it starts, Ray's processes included.

    python benchmarks/cost.py -- pipeline run all --config configs/demo.yaml --run runs/cost

Memory is the sum of the proportional set sizes (shared pages counted once) of the command and all its descendants,
sampled once a second. Prints one line.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import psutil


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("give a command after --")
    started = time.monotonic()
    process = subprocess.Popen(command)
    root = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(root))
        time.sleep(1)
    seconds = time.monotonic() - started
    print(f"{seconds:.0f} s wall, peak memory {peak / 2**30:.2f} GiB over all processes, {psutil.cpu_count()} cores: {' '.join(command)}")
    return process.returncode


def memory(root: psutil.Process) -> int:
    """Bytes of a process and its descendants; those that just ended count nothing."""
    total = 0
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in family:
        try:
            total += member.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


if __name__ == "__main__":
    sys.exit(main())
