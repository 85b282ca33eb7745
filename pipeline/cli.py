"""The command line. Imports only click at the top, so that ``--help`` answers at once."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from pipeline.commands.annotate import annotate
from pipeline.commands.common import ADDRESS, CONFIG, EXAMPLE, OVERRIDES, RUN, VERIFY, Options, common, takes
from pipeline.commands.editor_bench import editor_bench
from pipeline.commands.editors import editors
from pipeline.commands.export import export
from pipeline.commands.rehearse import rehearse
from pipeline.commands.reward import reward
from pipeline.commands.run import run
from pipeline.commands.select import select
from pipeline.commands.shards import shards


class _OneSentence(click.Group):
    """A group whose commands answer a user's mistake, a full disk and Ctrl-C with one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os._exit(141)  # the reader of the output has closed it, as in `pipeline plan | head -1`
        except Exception as error:
            if not isinstance(error, (ValueError, OSError)) and not _of_s3(error):
                raise
            run: Path | None = ctx.find_root().meta.get("run")
            if run is not None and run.is_dir():
                _note(run / "errors.log")
            click.echo(f"error: {_sentence(error, run)}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nstopped: the same command resumes the run", err=True)
            ctx.exit(130)


def _note(log: Path) -> None:
    """Keep the traceback for a bug report; a full disk must not hide the sentence."""
    try:
        log.write_text(traceback.format_exc())
    except OSError as error:
        click.echo(f"({log} could not be written: {error.strerror})", err=True)


def _sentence(error: BaseException, run: Path | None) -> str:
    from stages.engine.storage import final_name

    name = final_name(str(error.filename)) if isinstance(error, OSError) and error.filename else None
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = name or run or error.strerror
        return f"the disk is full ({where}); make room and run the same command again: finished work is kept"
    if isinstance(error, PermissionError) and name:
        return f"{name} may not be read or written by this user; change its permissions, or choose another place"
    if isinstance(error, OSError) and name:
        return f"{name}: {error.strerror}"
    if _of_s3(error):
        return (
            f"s3:// cannot be used ({error}); name credentials in AWS_PROFILE, or in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "(FSSPEC_S3_ANON=true reads public buckets without), see to the network, and run again"
        )
    return str(error) or type(error).__name__


def _of_s3(error: BaseException) -> bool:
    """Whether it is an error of the library behind s3://, which knows no credentials or finds no server."""
    return type(error).__module__ == "botocore.exceptions"


@click.group(cls=_OneSentence, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edit-reward-pipeline")
def main() -> None:
    """From candidate edits and human ratings to a reward model, filtered edit data and a better image editor.

    \b
    Try it:  pipeline run all --config demo-small
    """
    # Without torchvision transformers warns that it takes the image processors by Pillow: those are the ones wanted here.
    logging.getLogger("transformers.utils.import_utils").setLevel(logging.ERROR)


for _group in (run, annotate, select, reward, rehearse, shards, export, editors, editor_bench):
    main.add_command(_group)


@main.command(
    help="Read a configuration and its run directory; print each step's state, work and estimated cost. Writes nothing.\n\n"
    + EXAMPLE.format(command="plan", more="")
)
@common
def plan(options: Options) -> None:
    from pipeline.planning import plan as planning

    print(planning.plan(options.loaded.flow, options.run.path))


@main.command(
    help="Read a run directory; print each step's state, row counts and main result, and look for damaged files: those with another size "
    "or time than when they were last hashed are hashed again.\n\n" + EXAMPLE.format(command="status", more="")
)
@takes(CONFIG, ADDRESS, RUN, VERIFY, OVERRIDES)
def status(options: Options) -> None:
    from pipeline import status as looking
    from stages.engine import hashed_files

    with hashed_files.all_anew() if options.verify else nullcontext():
        print(looking.status(options.run.path))


@main.command(
    help=f"Read what the steps of a run published; write report.html into the run directory.\n\n{EXAMPLE.format(command='report', more='')}"
)
@common
def report(options: Options) -> None:
    from pipeline.flow import STEPS
    from pipeline.report import page

    run = options.run
    if run.path.is_dir() and not any(run.step(step.name).index() for step in STEPS):
        raise ValueError(f"no step of {run.path} is done, so there is nothing to report; `pipeline plan` says what is missing")
    print(f"report: {page.build(run)}")


@main.group(name="config")
def config_group() -> None:
    """Look at configurations.

    \b
    Example:
      pipeline config show --config demo seed=3
    """


@config_group.command(
    name="show",
    help="Read a configuration; print every value and its origin: file and line, override, or default. Writes nothing.\n\n"
    + EXAMPLE.format(command="config show", more=" seed=3"),
)
@common
def config_show(options: Options) -> None:
    from pipeline import config

    click.echo(config.show(options.loaded), nl=False)


@config_group.command(
    name="explain",
    help="Print a configuration key's type, default and description, and the keys below it.\n\n"
    "\b\nExample:\n  pipeline config explain reward.training.learning_rate",
)
@click.argument("key", required=False)
@click.option("--all", "everything", is_flag=True, help="All keys, as the page docs/configuration-reference.md.")
def config_explain(key: str | None, everything: bool) -> None:
    from pipeline import config_keys

    if (key is None) != everything:
        raise click.UsageError("give one KEY such as reward.training.steps, or --all")
    click.echo(config_keys.reference() if key is None else config_keys.explain(key), nl=key is not None)


if __name__ == "__main__":
    sys.exit(main())
