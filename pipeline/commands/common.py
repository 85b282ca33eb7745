"""What the commands have in common: their options, the configuration that they load, the context that a step gets."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pipeline.config import Loaded
    from stages.context import Context

EXAMPLE = "\b\nExample:\n  pipeline {command} --config configs/demo.yaml{more}"


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command has."""
    for option in (
        click.argument("overrides", nargs=-1, metavar="[KEY.PATH=VALUE]..."),
        click.option("--run", "run_path", metavar="DIR", help="Run directory; default: runs/<name of the configuration>."),
        click.option("--address", help="Ray cluster to join (auto, host:port or ray://...); default: a local one."),
        click.option("--config", "config_path", metavar="FILE", help="Configuration; default: the one frozen in --run DIR."),
    ):
        command = option(command)
    return command


def load(config_path: str | None, run_path: str | None, overrides: tuple[str, ...]) -> Loaded:
    """The configuration that the options name: a file, or the one frozen in a run directory."""
    from pipeline import config

    if config_path is None:
        if run_path is None:
            raise click.UsageError("give --config FILE (the shipped ones are in configs/), or --run DIR of an existing run")
        frozen = Path(run_path) / "config.yaml"
        if not frozen.exists():
            raise ValueError(f"--run {run_path}: no run was begun there; give --config FILE as well (the shipped ones are in configs/)")
        config_path = str(frozen)
    return config.load(config_path, overrides)


def run_path_of(loaded: Loaded, run_path: str | None) -> Path:
    """The run directory that the options name."""
    from stages.engine.rundir import RunDir

    return RunDir(run_path or Path("runs") / loaded.flow.name).path


@contextmanager
def opened(
    config_path: str | None, run_path: str | None, address: str | None, overrides: tuple[str, ...], force: bool = False
) -> Generator[Context]:
    """Everything a step needs; holds the lock of the run directory and leaves the cluster at the end."""
    from pipeline import config
    from stages.context import Context
    from stages.engine import storage
    from stages.engine.cluster import Cluster
    from stages.engine.rundir import RunDir

    loaded = load(config_path, run_path, overrides)
    run = RunDir(run_path_of(loaded, run_path))
    with run:
        click.get_current_context().find_root().meta["run"] = run.path
        frozen = run.path / "config.yaml"
        if not frozen.exists():
            storage.publish_bytes(frozen, config.dump(loaded.flow).encode())
        cluster = Cluster(loaded.flow.ray, address)
        try:
            yield Context(run, loaded.flow, cluster, force)
        finally:
            cluster.close()
        storage.publish_bytes(frozen, config.dump(loaded.flow).encode())
