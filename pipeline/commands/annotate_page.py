"""`pipeline annotate serve` and `pipeline annotate roster`: the rating page and the people who may open it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.common import CONFIG, OVERRIDES, Options, takes

if TYPE_CHECKING:
    from stages.annotate.config import AnnotateConfig
    from stages.engine.rundir import RunDir

HOME = "http://127.0.0.1:8321"

EXPOSED = """\
warning: the page listens on {host}, which other machines can reach, over plain HTTP: anyone who can read the traffic can steal a link.
  Put a reverse proxy with TLS in front (nginx, Caddy: forward to this port, set X-Forwarded-Proto), let only the proxy reach the port,
  and add a login there if the page is open to the internet. Make the links with roster add NAME --home https://the.public.name"""


OF_RUN = click.option("--run", "run_path", metavar="DIR", required=True, help="Run directory.")


def as_address(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The address before ``/a/TOKEN``. Refuses one that is no link in a mail."""
    if value is not None and not value.startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} does not begin with http:// or https://.")
    return value if value is None else value.rstrip("/")


_home = click.option(
    "--home", default=HOME, show_default=True, callback=as_address, help="Address under which the person reaches the page."
)
HOST = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
EXPOSE = click.option("--expose", is_flag=True, help="Allow a --host that other machines can reach.")


@click.command(
    help="Serve the rating page to the people on the roster until interrupted. Run annotate export first.\n\n\b\nExample:\n"
    "  pipeline annotate export --run runs/rated\n"
    '  pipeline annotate roster add --run runs/rated "Ada Lovelace"\n'
    "  pipeline annotate serve --run runs/rated"
)
@takes(OVERRIDES, OF_RUN, CONFIG)
@HOST
@EXPOSE
@click.option("--preview", is_flag=True, help="Show the page as an annotator sees it, by one link, and store nothing.")
def serve(options: Options, host: str, expose: bool, preview: bool) -> None:
    check_host(host, expose)
    if preview:
        from stages.annotate.page import server

        shown = "preview (nothing is stored; Ctrl-C stops it): {}"
        return server.serve_preview(
            options.run, options.loaded.flow.annotate, host=host, started=lambda link: click.echo(shown.format(link))
        )
    serve_page(options.run, options.loaded.flow.annotate, host)


def check_host(host: str, expose: bool) -> None:
    """Warn about an address that other machines can reach. Raises ``ValueError`` without ``--expose``."""
    if _loopback(host):
        return
    if not expose:
        raise ValueError(
            f"--host {host} can be reached from other machines: give --expose as well, and put a proxy with TLS in front; "
            "or leave --host out"
        )
    click.echo(EXPOSED.format(host=host), err=True)


def serve_page(run: RunDir, config: AnnotateConfig, host: str, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve the rating page of a run until interrupted; ``ready`` is called with the address once the socket is open."""
    from stages.annotate.page import server
    from stages.annotate.page.waiting import unknown_experts

    def started(address: str) -> None:
        ready(address)
        people = [person for person in server.roster_of(run).people if not person.revoked]
        if not people:
            click.echo("the roster is empty; `pipeline annotate roster add` makes links", err=True)
        for text in unknown_experts(people, config.plan):
            click.echo(f"warning: {text}", err=True)
        click.echo(f"rating page: {address} (open it with a personal link; on the roster: {len(people)}; Ctrl-C stops it)")

    server.serve(run, config, host=host, started=started)


@click.group()
def roster() -> None:
    """People who may open the rating page and their personal links; the roster is the only file with names.

    \b
    Example:
      pipeline annotate roster list --run runs/rated
    """


@roster.command(
    name="add",
    help="Add a person and print the personal link, which is shown only once.\n\n\b\nExample:\n"
    '  pipeline annotate roster add --run runs/rated "Ada Lovelace"',
)
@click.argument("name")
@OF_RUN
@_home
@click.option("--lead", is_flag=True, help="A link to the lead's page instead.")
def roster_add(name: str, run_path: str, home: str, lead: bool) -> None:
    person, token = _roster(run_path).add(name, "lead" if lead else "annotator")
    print(f"{person.pseudonym}  {person.name}  {home}/a/{token}")


@roster.command(name="list", help="List the people on the roster.\n\n\b\nExample:\n  pipeline annotate roster list --run runs/rated")
@OF_RUN
def roster_list(run_path: str) -> None:
    from pipeline.words import text_table

    rows = [[person.pseudonym, person.name, "revoked" if person.revoked else "valid"] for person in _roster(run_path).people]
    print(text_table(["pseudonym", "name", "link"], rows))


@roster.command(
    name="revoke",
    help="Revoke a person's link immediately. The ratings stay.\n\n\b\nExample:\n"
    "  pipeline annotate roster revoke --run runs/rated annotator-01",
)
@click.argument("who")
@OF_RUN
def roster_revoke(who: str, run_path: str) -> None:
    person = _roster(run_path).revoke(who)
    print(f"{person.pseudonym}  {person.name}  revoked")


@roster.command(
    name="renew",
    help="Replace a lost or revoked link by a new one.\n\n\b\nExample:\n  pipeline annotate roster renew --run runs/rated annotator-01",
)
@click.argument("who")
@OF_RUN
@_home
def roster_renew(who: str, run_path: str, home: str) -> None:
    person, token = _roster(run_path).renew(who)
    print(f"{person.pseudonym}  {person.name}  {home}/a/{token}")


def existing_run(run_path: str) -> RunDir:
    """The run; raises ``ValueError`` when there is no run directory."""
    from stages.engine.rundir import RunDir

    run = RunDir(run_path)
    if not run.path.is_dir():
        raise ValueError(f"--run {run_path}: there is no run directory; `pipeline annotate export` makes one")
    return run


def _roster(run_path: str) -> Any:
    from stages.annotate.page.roster import roster_of

    return roster_of(existing_run(run_path))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
