"""`pipeline shards`: verify a folder of shards, export it for trainers that read image files."""

from __future__ import annotations

import click


@click.group()
def shards() -> None:
    """Verify or export the webdataset shards that the filter wrote.

    \b
    Example:
      pipeline shards verify runs/demo/filter/shards/selected
    """


@shards.command(name="verify")
@click.argument("folder")
def shards_verify(folder: str) -> None:
    """Check every shard in FOLDER (a path or URL) against its index: hashes, members, counts. Writes nothing.

    \b
    Example:
      pipeline shards verify runs/demo/filter/shards/selected
    """
    from stages.shards import format as library
    from stages.shards.verify import verify

    library.require(folder)
    problems = verify(folder)
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        found = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ValueError(f"{folder}: {found}; delete the damaged files and run the filter step again, or copy the folder again")
    print(f"{folder}: all shards are sound")


@shards.command(name="export")
@click.argument("folder")
@click.argument("target")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["step1x", "imagefolder", "omnigen2"]),
    required=True,
    help="step1x: Step1X-Edit's trainer; imagefolder: Hugging Face datasets and diffusers; omnigen2: OmniGen2's trainer.",
)
def shards_export(folder: str, target: str, layout: str) -> None:
    """Read the shards in FOLDER (a path or URL); write image files and a trainer's metadata into the new folder TARGET.

    \b
    Example:
      pipeline shards export --format step1x \\
        runs/demo/filter/shards/selected exported/selected
    """
    from stages.shards import exports

    count, metadata = exports.export(folder, target, layout)
    print(f"{count:,} samples in {target}; for the trainer: {', '.join(metadata)}")
