"""The options that most commands share: one decorator adds them to a command, one object has their values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pipeline.config import Loaded
    from stages.context import Context
    from stages.engine.rundir import RunDir

EXAMPLE = "\b\nExample:\n  pipeline {command} --config demo{more}"


@dataclass(frozen=True)
class Options:
    """Values of the shared options; ``force`` and ``verify`` are those of commands that also have them."""

    config_path: str | None = None
    run_path: str | None = None
    address: str | None = None
    overrides: tuple[str, ...] = ()
    force: bool = False
    verify: bool = False

    @functools.cached_property
    def loaded(self) -> Loaded:
        """The configuration: a file, or the one frozen in the run directory. Raises ``ValueError`` where it is not valid."""
        from pipeline import config

        path = self.config_path
        if path is None:
            if self.run_path is None:
                for word in self.overrides:
                    if "=" not in word:
                        raise click.UsageError(f"{word!r} is not of the form KEY.PATH=VALUE; for a configuration give --config {word}")
                raise click.UsageError("give --config FILE (or the name of a shipped one, such as demo), or --run DIR of an existing run")
            frozen = Path(self.run_path) / "config.yaml"
            if not frozen.exists():
                raise ValueError(f"--run {self.run_path}: there is no run; give --config FILE as well (or a shipped one: demo)")
            path = str(frozen)
        return config.load(path, self.overrides)

    @property
    def run(self) -> RunDir:
        """The run directory, which need not exist: ``--run``, or runs/<name of the configuration>."""
        from stages.engine.rundir import RunDir

        loaded = self.loaded
        return RunDir(self.run_path or Path("runs") / loaded.flow.name)


def _not_empty(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty text, which an unset variable of the shell gives."""
    if value == "":
        raise click.UsageError(f"{parameter.opts[0]} is empty; name it, or leave the option out")
    return value


class Finite(click.FloatRange):
    """A range of numbers without infinity and NaN, which click compares with no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY.PATH=VALUE]...")
CONFIG = click.option(
    "--config",
    "config_path",
    callback=_not_empty,
    metavar="FILE",
    help="Configuration: a file, or a shipped one's name (demo); default: the run's own.",
)
RUN = click.option(
    "--run", "run_path", callback=_not_empty, metavar="DIR", help="Run directory; default: runs/<name of the configuration>."
)
ADDRESS = click.option("--address", help="Ray cluster to join (auto, host:port or ray://...); default: a local one.")


def takes(*shared: Decorator) -> Decorator:
    """Give a command shared options, which its help lists in this order. Its function gets them as its first argument, an ``Options``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_options(**given: Any) -> Any:
            values = {field.name: given.pop(field.name) for field in fields(Options) if field.name in given}
            return command(Options(**values), **given)

        return functools.reduce(lambda decorated, option: option(decorated), reversed(shared), with_options)

    return decorate


common = takes(CONFIG, ADDRESS, RUN, OVERRIDES)
"""The shared options of most commands."""
VERIFY = click.option("--verify", is_flag=True, help="Hash every file again, also those whose size and times are as before.")


@contextmanager
def opened(options: Options) -> Generator[Context]:
    """The context of a step, with the run directory locked. Disconnects from the cluster at the end."""
    from pipeline import config
    from stages.context import Context
    from stages.engine import hashed_files, storage
    from stages.engine.cluster import Cluster

    flow = options.loaded.flow
    with hashed_files.all_anew() if options.verify else nullcontext(), options.run as run:
        click.get_current_context().find_root().meta["run"] = run.path
        frozen = run.path / "config.yaml"
        if not frozen.exists():
            storage.publish_bytes(frozen, config.dump(flow).encode())
        cluster = Cluster(flow.ray, options.address)
        try:
            yield Context(run, flow, cluster, options.force)
        finally:
            cluster.close()
        storage.publish_bytes(frozen, config.dump(flow).encode())
