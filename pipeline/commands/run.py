"""`pipeline run`: one step of the flow, or all of them, and the report of what they made."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.common import ADDRESS, CONFIG, EXAMPLE, OVERRIDES, RUN, VERIFY, Options, opened, takes
from pipeline.flow import STEPS, Step, steps_of
from pipeline.words import text_table
from stages.engine.steps import COMMANDS

if TYPE_CHECKING:
    from stages.context import Context


TRACKERS = ("tensorboard", "wandb")
GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Of NVIDIA's driver, of the same under Windows' Linux, and of AMD's; without one of them torch finds no GPU."""
PACKAGES = ("torch", "transformers", "diffusers", "ray", "pyarrow", "webdataset", "numpy", "pillow")


@click.group()
def run() -> None:
    """Run a step of the flow, or all of them. Steps that are up to date are skipped, interrupted ones resume.

    \b
    Example:
      pipeline run all --config demo-small
    """


def _add(name: str, text: str, more: str = "") -> None:
    @run.command(name=name, help=f"{text}\n\n{EXAMPLE.format(command=f'run {name}', more=more)}")
    @takes(CONFIG, ADDRESS, RUN, VERIFY, OVERRIDES)
    @click.option("--force", is_flag=True, help="Redo what was made with other settings or inputs.")
    @click.option("--retry-images", is_flag=True, help="Read images again that were not found, or that a server did not send.")
    @click.option("--track", "trackers", multiple=True, type=click.Choice(TRACKERS), help="Send what is measured there; may be repeated.")
    def command(options: Options, trackers: tuple[str, ...], *, retry_images: bool) -> None:
        if retry_images and not options.force:
            raise click.UsageError("--retry-images needs --force as well, because what is finished is made again")
        with opened(options) as context:
            from pipeline.report import page
            from pipeline.tracking import tracked

            if retry_images:
                _forget_unsent(context, steps_of(context.flow, name))
            with tracked(context.run, trackers):
                run_steps(context, steps_of(context.flow, name))
            print(f"\nreport: {page.build(context.run)}")


_add("all", "Run every step that the configuration has a section for, then write the report.", " seed=1")
for _step in STEPS:
    if _step.name not in COMMANDS:
        _add(_step.name, f"Read {_step.reads}; write {_step.writes}. {_step.detail}".rstrip())


def _forget_unsent(context: Context, steps: Sequence[Step]) -> None:
    """Let the steps read those slices again in which an image was not found; prints how many rows that are."""
    from stages.datasets.seen import UNSENT
    from stages.engine import unit_log

    for step in steps:
        rows = unit_log.forget(context.run.step(step.name), UNSENT)
        if rows:
            print(f"{step.name}: rows whose images are looked for again: {rows:,}")


def run_steps(context: Context, steps: Sequence[Step]) -> None:
    """Run steps in order; prints the list of them first and a table of results at the end."""
    from pipeline.status import counted, headline

    print(f"run directory: {context.run.path}")
    listed = (f"{number}. {step.name} ({step.reads} -> {step.writes})" for number, step in enumerate(steps, start=1))
    print("steps: " + "; ".join(listed), flush=True)
    for step in steps:  # before any of them begins
        getattr(importlib.import_module(step.module), "check", lambda _: None)(context)
    rows = []
    for step in steps:
        folder = context.run.step(step.name)
        before, published = folder.index(), folder.published()
        started, clock = datetime.now(UTC), time.monotonic()
        index = importlib.import_module(step.module).run(context)
        seconds = time.monotonic() - clock
        known = context.run.manifest().get("steps", {}).get(step.name)
        if before != index or known is None:
            context.run.note(step.name, _facts(started, seconds, context.flow.seed))
            state = "done"
        else:
            state = "up to date" if folder.published() == published else "repaired"
        rows.append([step.name, state, f"{seconds:.1f} s", counted(index), headline(index)])
        print(f"{step.name}: {state} in {seconds:.1f} s  {headline(index)}", flush=True)
    print("\n" + text_table(["step", "state", "time", "rows", "result"], rows), flush=True)


def _facts(started: datetime, seconds: float, seed: int) -> dict[str, Any]:
    return {
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "command": " ".join(["pipeline", *sys.argv[1:]]),
        "seed": seed,
        "code": _code_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count(), "gpus": _gpus()},
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _code_version() -> str:
    """Package version, with the commit when the code is a git checkout."""
    version = importlib.metadata.version("edit-reward-pipeline")
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return version
    answer = subprocess.run(["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{version}+{answer.stdout.strip()}" if answer.returncode == 0 and answer.stdout.strip() else version


def _gpus() -> list[str]:
    if not any(Path(device).exists() for device in GPU_DEVICES):
        return []  # torch takes seconds to import
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
