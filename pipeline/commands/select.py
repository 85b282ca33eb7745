"""`pipeline select`: another selection from scores that exist; `pipeline select diff`: what changed between two."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands.common import Finite, Options, common, opened

RULES = ("top", "bottom", "random", "closest-to-source", "all")
VALUES = ("overall", "lower-bound", "likert", "product", "minimum")

_HELP = """Make another selection from existing scores, without scoring again.

Reads the scores of the filter step; writes a table of the selected edits beside them, and shards with --shards. A rule orders the
edits, a size or a threshold sets the cut, quotas and --at-most limit what is kept. The same command on the same scores gives the same
bytes. `pipeline select diff A B` compares two selections.

\b
Examples:
  pipeline select --run runs/demo --name best-1000 --rule top --count 1000
  pipeline select --run runs/demo --name sure --rule top \\
    --value lower-bound --sigmas 1 --fraction 0.2
  pipeline select --run runs/demo --name good --rule top \\
    --value minimum --threshold 3
  pipeline select --run runs/demo --name even --rule top --count 800 \\
    --quota-by task --quota equal --short refill
  pipeline select --run runs/demo --name control --rule random \\
    --like even --quota-by task --quota like
  pipeline select --run runs/demo --name varied --rule top \\
    --fraction 0.1 --at-most 2 --per instruction
  pipeline select --run runs/demo --name clean --rule top \\
    --fraction 0.1 --without-flag drift --without-flag contamination
  pipeline select diff selected even --run runs/demo
"""


class _WithDiff(click.Command):
    """A command that delegates to `diff` when that is its first argument."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        if args[:1] == [diff.name]:
            return diff.make_context(f"{info_name} {diff.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(name="select", cls=_WithDiff, help=_HELP)
@common
@click.option("--name", required=True, help="Name of the selection.")
@click.option("--rule", required=True, type=click.Choice(RULES), help="The order: top is the best value first.")
@click.option("--value", type=click.Choice(VALUES), default="overall", show_default=True, help="What top, bottom and all order by.")
@click.option("--sigmas", type=Finite(), default=1.0, show_default=True, help="k of lower-bound: mean - k sigma.")
@click.option(
    "--scale", type=click.Choice(["likert", "percentile"]), default="likert", show_default=True, help="Scale of product and minimum."
)
@click.option("--count", type=int, help="How many to keep.")
@click.option("--fraction", type=Finite(), help="Share of the scored edits to keep, instead of --count.")
@click.option("--like", metavar="NAME", help="As many as another selection keeps, instead of --count.")
@click.option("--threshold", type=Finite(), help="Keep values of at least this (at most, for bottom and closest-to-source).")
@click.option("--quantile", type=Finite(), help="A threshold as a quantile of the values, e.g. 0.9 for the best tenth.")
@click.option("--quota-by", metavar="COLUMN", help="Strata: task, language, source, metadata.KEY, flag.NAME ...")
@click.option(
    "--quota", "quota", multiple=True, metavar="SHARES", help="proportional, equal, like; or STRATUM=NUMBER, may be given several times."
)
@click.option(
    "--short",
    type=click.Choice(["refuse", "refill"]),
    default="refuse",
    show_default=True,
    help="What to do when a stratum has too few edits.",
)
@click.option("--without-flag", "without_flags", multiple=True, metavar="NAME", help="Leave out edits that this gate flags; repeatable.")
@click.option("--at-most", type=int, metavar="N", help="Keep at most N of each cluster.")
@click.option("--per", metavar="COLUMN", help="Column that defines clusters: source, instruction, edited_phash, metadata.KEY ...")
@click.option("--bits", type=int, default=0, show_default=True, help="Perceptual hashes that differ in at most N bits are one cluster.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random rule.")
@click.option("--shards/--no-shards", default=False, show_default=True, help="Also write webdataset shards.")
def select(options: Options, shards: bool, **flags: Any) -> None:
    """Make and publish a selection."""
    with opened(options) as context:
        from pipeline.commands import print_selection as selecting

        selecting.select(context, selecting.read_flags(flags), shards=shards)


@click.command(name="diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@common
@click.option("--by", metavar="COLUMN", default="task", show_default=True, help="Column that defines the strata of the table.")
@click.option("--page", metavar="FILE", help="The HTML page; default: selection-A-B.html in the run directory.")
@click.option("--images", type=click.IntRange(min=0), default=12, show_default=True, help="Edits shown per side.")
def diff(options: Options, first: str, second: str, by: str, page: str | None, images: int) -> None:
    """Compare the selections A and B: print tables; write a page with the edits that only one of them keeps.

    \b
    Example:
      pipeline select diff selected random --run runs/demo
    """
    with opened(options) as context:
        from pipeline.commands import print_selection as selecting

        selecting.diff(context, first, second, by=by, page=page, images=images)
