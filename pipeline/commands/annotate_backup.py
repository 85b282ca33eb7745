"""`pipeline annotate backup` and `pipeline annotate restore`: copies of the rating page's database and roster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.commands.annotate_page import OF_RUN, existing_run

if TYPE_CHECKING:
    from stages.annotate.page.backup import Backup


@click.command(
    help="Copy the rating page's database and the roster, also while people rate. Each backup is a new folder.\n\n\b\nExample:\n"
    "  pipeline annotate backup --run runs/rated --to /backups/rated"
)
@OF_RUN
@click.option("--to", "target", required=True, metavar="DIR", help="Folder of the backups, best on another disk.")
def backup(run_path: str, target: str) -> None:
    from stages.annotate.page import backup as backups

    print(f"backup: {_described(backups.write(existing_run(run_path), Path(target)))}")


@click.command(
    help="Put a backup of the rating page back; stop the page first. What is there is moved aside.\n\n\b\nExample:\n"
    "  pipeline annotate restore --run runs/rated \\\n    --from /backups/rated/2026-11-22T160102.000000Z"
)
@OF_RUN
@click.option("--from", "source", required=True, metavar="DIR", help="Folder of one backup.")
def restore(run_path: str, source: str) -> None:
    from stages.annotate.page import backup as backups

    done = backups.restore(existing_run(run_path), Path(source))
    print(f"restored: {_described(done)}" + (f"\nwhat was there before: {done.aside}" if done.aside else ""))


def _described(done: Backup) -> str:
    return f"{done.folder} ({done.submissions:,} submissions" + (f", the newest of {done.latest})" if done.latest else ")")
