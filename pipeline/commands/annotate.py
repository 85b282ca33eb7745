"""`pipeline annotate`: export groups to raters, ingest and check their ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.commands.annotate_backup import backup, restore
from pipeline.commands.annotate_page import roster, serve
from pipeline.commands.annotate_start import start
from pipeline.commands.common import EXAMPLE, Options, common, opened
from stages.annotate.formats.read import AUTO, FORMATS

ROUNDS = ("pilot", "adjudication", "benchmark", "ranking")


@click.group()
def annotate() -> None:
    """Human ratings: export groups to raters, ingest and check their ratings, or simulate raters of the toy world.

    \b
    Example:
      pipeline annotate export --config demo
    """


@annotate.command(
    name="export",
    help="Write the groups to rate: for the rating page, as a table to fill in, as JSON Lines and for Label Studio; and the lead's "
    "rating plan. A further export adds its groups; a running rating page takes them up.\n\n"
    f"{EXAMPLE.format(command='annotate export', more='')}",
)
@common
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N groups.")
@click.option("--groups", "groups", metavar="FILE", help="Only the groups in this list: a CSV with a column group_id, or one id per line.")
@click.option(
    "--round",
    type=click.Choice(ROUNDS),
    help="A round of its own for these groups: a pilot of the rubric, disputed cells to adjudicate (--groups adjudicate.csv of "
    "annotate qc), a benchmark by experts, or rankings.",
)
@click.option("--replace", is_flag=True, help="Start a new packet and plan instead of adding to them; stop the rating page first.")
def annotate_export(options: Options, limit: int | None, groups: str | None, round: str | None, replace: bool) -> None:
    with opened(options) as context:
        from stages.annotate import step

        print(f"exported for the raters: {step.export(context, limit=limit, groups=groups, round=round, replace=replace)}")


@annotate.command(
    name="ingest",
    help="Add ratings to the ledger. Every row is validated, duplicates are skipped, invalid rows are quarantined with a reason.\n\n"
    + EXAMPLE.format(command="annotate ingest --file ratings.csv", more=""),
)
@common
@click.option("--file", "files", multiple=True, required=True, metavar="FILE", help="File of ratings; may be given several times.")
@click.option(
    "--format",
    "layout",
    metavar="FORMAT",
    type=click.Choice([AUTO, *FORMATS]),
    default=AUTO,
    show_default=True,
    help="auto: by content; " + "; ".join(f"{name}: {format.description}" for name, format in FORMATS.items()) + ".",
)
@click.option(
    "--pseudonyms",
    "pseudonym_list",
    metavar="FILE",
    help="CSV with columns name,pseudonym; rows of people not on the list are quarantined.",
)
@click.option("--force", is_flag=True, help="Start a new ledger if the old one has other candidates.")
def annotate_ingest(options: Options, files: tuple[str, ...], layout: Any, pseudonym_list: str | None) -> None:
    with opened(options) as context:
        from pipeline.commands import print_ratings as ratings
        from stages.annotate import step

        print(ratings.ingested(step.ingest(context, [Path(file) for file in files], layout, pseudonym_list)))


@annotate.command(
    name="simulate",
    help=f"Let the toy world's raters rate the sampled candidates.\n\n{EXAMPLE.format(command='annotate simulate', more='')}",
)
@common
def annotate_simulate(options: Options) -> None:
    with opened(options) as context:
        from stages.annotate import step

        for path in step.simulate(context):
            print(path)


@annotate.command(
    name="next",
    help="Experiment, no better than a draw so far: choose groups to rate with the reward model, as a list for "
    "`annotate export --groups`.\n\n" + EXAMPLE.format(command="annotate next --count 100 --strategy information", more=""),
)
@common
@click.option("--count", required=True, type=click.IntRange(min=1), help="How many groups.")
@click.option(
    "--strategy",
    type=click.Choice(["information", "random"]),
    required=True,
    help="information: groups on which the reward model is uncertain or wrong, of kinds with few ratings; random: a seeded draw.",
)
@click.option("--model", metavar="DIR", help="Reward model; default: the one trained in this run.")
def annotate_next(options: Options, count: int, strategy: Any, model: str | None) -> None:
    with opened(options) as context:
        from pipeline.commands import print_ratings as ratings
        from stages.annotate.active import step

        index = step.run(context, count=count, strategy=strategy, model=model)
        print(ratings.chosen(context.run.path, context.run.step(step.STEP).path / step.LIST, index))


@annotate.command(
    name="qc",
    help="Rating quality control: accepted ratings, annotators who need attention, re-annotation queue. The ledger does not change. Exit "
    "status 0: the targets are met; 2: they are not.\n\n" + EXAMPLE.format(command="annotate qc", more=""),
)
@common
def annotate_qc(options: Options) -> None:
    with opened(options) as context:
        from pipeline.commands import print_quality as quality
        from stages.annotate.quality import step as annotation_qc

        met = annotation_qc.run(context).results["met"]
        print(quality.summary(context.run))
    click.get_current_context().exit(0 if met else 2)


@annotate.command(
    name="build-bench",
    help="Make a benchmark in the layout of EditReward-Bench from ratings of three experts: comparisons of 2, 3 and 4 edits, the "
    "hardest first.\n\n" + EXAMPLE.format(command="annotate build-bench", more=""),
)
@common
@click.option("--force", is_flag=True, help="Run again if settings or ratings have changed.")
def annotate_build_bench(options: Options) -> None:
    with opened(options) as context:
        from pipeline.commands import print_quality as quality
        from stages.annotate.bench import step as build_bench

        build_bench.run(context)
        print(quality.bench(context.run))


@annotate.command(
    name="consensus",
    help="One score per candidate and dimension from the accepted ratings of several people.\n\n"
    + EXAMPLE.format(command="annotate consensus --method majority", more=""),
)
@common
@click.option(
    "--method",
    required=True,
    type=click.Choice(["mean", "majority", "mos", "ranking"]),
    help="mean; majority of at least three, else adjudication; mos: mean opinion score 0..100 of z-scores; ranking: mean rank.",
)
def annotate_consensus(options: Options, method: Any) -> None:
    with opened(options) as context:
        from pipeline.commands import print_quality as quality
        from stages.annotate.consensus import step as annotation_consensus

        index = annotation_consensus.run(context, method)
        print(quality.consensus(index, context.run))


annotate.add_command(start)
annotate.add_command(serve)
annotate.add_command(backup)
annotate.add_command(restore)
annotate.add_command(roster)
