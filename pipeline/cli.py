"""The command line. Imports only click at the top, so that ``--help`` answers at once."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from pipeline.commands.annotate import annotate
from pipeline.commands.common import EXAMPLE, common, load, opened, run_path_of
from pipeline.commands.export import export
from pipeline.commands.reward import reward
from pipeline.commands.select import select
from pipeline.commands.shards import shards

STEP_HELP = {
    "all": "Every step that the configuration has a section for, then the report.",
    "generate": "Sources in, candidates out: every editor edits every source.",
    "preferences": "Ratings in, preference pairs out, with statistics.",
    "train-reward": "Preference pairs in, reward model out.",
    "evaluate-reward": "Held-out agreement, baselines, calibration of the reward model.",
    "filter": "Noisy edits in; scores, selections and webdataset shards out.",
    "finetune": "Shards in, editors out: the base and one arm per selection.",
    "evaluate-editor": "Base and arms on held-out scenes, judged in one go.",
}


class _OneSentence(click.Group):
    """A group whose commands end a user's mistake, a full disk and Ctrl-C with one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os._exit(141)  # whoever read our output has left, as in `pipeline plan | head -1`
        except (ValueError, OSError) as error:
            run: Path | None = ctx.find_root().meta.get("run")
            if run is not None and run.is_dir():
                _note(run / "errors.log")
            click.echo(f"error: {_sentence(error, run)}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nstopped: the same command goes on from what is done", err=True)
            ctx.exit(130)


def _note(log: Path) -> None:
    """Keep the traceback for a bug report; a full disk must not hide the sentence."""
    try:
        log.write_text(traceback.format_exc())
    except OSError as error:
        click.echo(f"({log} could not be written: {error.strerror})", err=True)


def _sentence(error: BaseException, run: Path | None) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = error.filename or run or error.strerror
        return f"the disk is full ({where}); make room and run the same command again: nothing done is lost"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


@click.group(cls=_OneSentence, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edit-reward-pipeline")
def main() -> None:
    """From candidate edits and human ratings to a reward model, filtered edit data and a better image editor.

    \b
    Try it:  pipeline run all --config configs/demo-small.yaml
    """


@main.group(name="run")
def run_group() -> None:
    """Run a step of the flow, or all of them. What is done already is not done again.

    \b
    Example:
      pipeline run all --config configs/demo-small.yaml
    """


def _add_step(name: str) -> None:
    @common
    @click.option("--force", is_flag=True, help="Redo what was made with other settings or inputs.")
    def command(config_path: str | None, run_path: str | None, address: str | None, force: bool, overrides: tuple[str, ...]) -> None:
        with opened(config_path, run_path, address, overrides, force) as context:
            from pipeline import flow, report

            steps = flow.steps_of(context.flow, name)
            flow.run_steps(context, steps)
            print(f"\nreport: {report.build(context.run)}")

    more = " seed=1" if name == "all" else ""
    command.__doc__ = f"{STEP_HELP[name]}\n\n{EXAMPLE.format(command=f'run {name}', more=more)}"
    run_group.command(name=name)(command)


for _name in STEP_HELP:
    _add_step(_name)


main.add_command(annotate)


main.add_command(select)
main.add_command(reward)
main.add_command(shards)
main.add_command(export)


@main.command(
    help=f"What the flow would do with this configuration, what is done, what it costs.\n\n{EXAMPLE.format(command='plan', more='')}"
)
@common
def plan(config_path: str | None, run_path: str | None, address: str | None, overrides: tuple[str, ...]) -> None:
    loaded = load(config_path, run_path, overrides)

    from pipeline.planning import plan as planning

    print(planning.plan(loaded.flow, run_path_of(loaded, run_path)))


@main.command(help=f"What a run directory holds: steps done, counts, damage.\n\n{EXAMPLE.format(command='status', more='')}")
@common
def status(config_path: str | None, run_path: str | None, address: str | None, overrides: tuple[str, ...]) -> None:
    from pipeline import status as looking

    print(looking.status(run_path_of(load(config_path, run_path, overrides), run_path)))


@main.command(help=f"Write the report page again.\n\n{EXAMPLE.format(command='report', more='')}")
@common
def report(config_path: str | None, run_path: str | None, address: str | None, overrides: tuple[str, ...]) -> None:
    from pipeline import report as page
    from stages.engine.rundir import RunDir

    path = run_path_of(load(config_path, run_path, overrides), run_path)
    if not path.is_dir():
        raise ValueError(f"there is no run directory {path}; `pipeline run` makes one")
    print(f"report: {page.build(RunDir(path))}")


@main.group(name="config")
def config_group() -> None:
    """Configurations.

    \b
    Example:
      pipeline config show --config configs/demo.yaml seed=3
    """


@config_group.command(
    name="show",
    help=f"Print the resolved configuration and where each value comes from.\n\n{EXAMPLE.format(command='config show', more=' seed=3')}",
)
@common
def config_show(config_path: str | None, run_path: str | None, address: str | None, overrides: tuple[str, ...]) -> None:
    from pipeline import config

    click.echo(config.show(load(config_path, run_path, overrides)), nl=False)


if __name__ == "__main__":
    sys.exit(main())
