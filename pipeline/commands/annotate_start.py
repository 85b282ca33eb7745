"""`pipeline annotate start`: from a folder of photographs, or any other sources, to the rating page by one command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pipeline.commands.annotate_page import EXPOSE, HOST, as_address, check_host, serve_page
from pipeline.commands.common import Options, common, opened

if TYPE_CHECKING:
    from stages.annotate.page.roster import Role
    from stages.engine.rundir import RunDir


@click.command(
    help="Make the candidates, export the groups, put people on the roster and serve the rating page until interrupted. What is up to "
    "date is skipped: people keep their links, and an exported packet of these candidates stays.\n\n\b\nExample:\n"
    '  pipeline annotate start --config my-photographs \\\n    --annotator "Ada Lovelace" --lead "The lead"'
)
@common
@click.option("--annotator", "annotators", multiple=True, metavar="NAME", help="Person who rates; may be given several times.")
@click.option("--lead", "leads", multiple=True, metavar="NAME", help="Person who gets a link to the lead's page.")
@click.option("--home", callback=as_address, help="Address under which people reach the page; default: the one on which it listens.")
@HOST
@EXPOSE
def start(options: Options, annotators: Sequence[str], leads: Sequence[str], home: str | None, host: str, expose: bool) -> None:
    check_host(host, expose)
    run = options.run
    wanted = _wanted(run, annotators, leads)
    with opened(options) as context:
        from pipeline.commands.run import run_steps
        from pipeline.flow import steps_of
        from stages.annotate import step
        from stages.engine import steps

        run_steps(context, steps_of(context.flow, steps.GENERATE))
        if step.is_exported(context):
            print("annotate export: up to date; `pipeline annotate export` adds groups")
        else:
            print(f"annotate export: {step.export(context)}")

    def started(address: str) -> None:
        for line in _links(run, wanted, home or address):
            click.echo(line)

    serve_page(run, options.loaded.flow.annotate, host, started)


def _wanted(run: RunDir, annotators: Sequence[str], leads: Sequence[str]) -> dict[str, Role]:
    """Roles by name. Raises ``ValueError`` where nobody could rate, or one name has two roles or two spellings."""
    from stages.annotate.page.roster import as_name, roster_of, spelling

    wanted: dict[str, Role] = {}
    people = roster_of(run).people
    for role, names in (("annotator", annotators), ("lead", leads)):
        for name in map(as_name, names):
            known = spelling([*(person.name for person in people), *wanted], name)
            if known not in (None, name):
                raise ValueError(f"--{role} {name!r} is {known} on the roster or before it; spell one person in one way")
            other = next((person.role for person in people if person.name == name), wanted.get(name, role))
            if other != role:
                raise ValueError(f"--{role} {name!r}: the roster has this name as {other}; give another")
            wanted[name] = role
    if "annotator" not in wanted.values() and not any(person.role == "annotator" and not person.revoked for person in people):
        raise ValueError("nobody is there to rate: give --annotator NAME, once for each person")
    return wanted


def _links(run: RunDir, wanted: dict[str, Role], home: str) -> list[str]:
    """A line for everybody on the roster after the wanted people are on it; a link is shown only when it is made."""
    from stages.annotate.page.roster import roster_of

    roster = roster_of(run)
    known = {person.name for person in roster.people}
    tokens = {name: roster.add(name, role)[1] for name, role in wanted.items() if name not in known}
    lines = []
    for person in roster.people:
        if person.name in tokens:
            link = f"{home}/a/{tokens[person.name]}"
        elif person.revoked:
            link = "the link is revoked"
        else:
            link = f"has a link; if it is lost: pipeline annotate roster renew --run {run.path} {person.pseudonym}"
        lines.append(f"{person.pseudonym}  {person.name}  {link}")
    return lines
