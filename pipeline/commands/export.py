"""`pipeline export`: results of a run in the file layouts of other projects."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands.common import EXAMPLE, Options, common


@click.group()
def export() -> None:
    """Write results of a run in the file layouts of other projects.

    \b
    Example:
      pipeline export pairs --config demo --format hub \\
        --target pairs-for-the-hub --licence cc-by-4.0
    """


@export.command(
    name="pairs",
    help="Read the preference pairs of a run; write them with their images into a new folder. Nothing is uploaded; nobody is named.\n\n"
    + EXAMPLE.format(command="export pairs --format reference-json --target pairs", more=""),
)
@common
@click.option(
    "--format",
    "layout",
    required=True,
    type=click.Choice(["reference-json", "hub"]),
    help="reference-json: training files of the public EditReward code; hub: Parquet and a card for the Hugging Face Hub.",
)
@click.option("--target", required=True, metavar="DIR", help="Folder to make; must not exist or be empty.")
@click.option("--licence", metavar="ID", help="hub: licence of the data set as you publish it, e.g. cc-by-4.0.")
@click.option(
    "--path-prefix", default="", metavar="TEXT", help="reference-json: put before image paths; without it they are relative to DIR."
)
def export_pairs(options: Options, layout: Any, target: str, licence: str | None, path_prefix: str) -> None:
    from stages.preferences import export_pairs as exporting

    made = exporting.export_pairs(options.run, layout, target, licence=licence, path_prefix=path_prefix)
    print(f"{made.folder}: " + ", ".join(f"{count:,} pairs for {split}" for split, count in made.pairs.items()))
    for reason, count in made.left_out.items():
        print(f"left out: {count:,} pairs ({reason})")
