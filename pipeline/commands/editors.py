"""`pipeline editors`: what can make candidates here, and what brings the rest."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stages.editors.editor import EditorSpec

TESTED = {
    "embedded": "here",
    "tiny weights": "tiny weights",
    "real weights": "real weights",
    "not run": "not run",
}


@click.group(invoke_without_command=True)
@click.pass_context
def editors(context: click.Context) -> None:
    """Without a command: list all editors, what is missing and what brings it, licence, what was tested. Writes nothing.

    \b
    Example:
      pipeline editors install omnigen2
    """
    if context.invoked_subcommand is None:
        _list()


@editors.command()
@click.argument("name")
@click.option("--folder", metavar="DIR", help="Where to install; default: ~/.local/share/edit-reward-pipeline/editors/NAME.")
@click.option("--python", metavar="FILE", default=sys.executable, help="Interpreter to make the environment with; default: this one.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def install(name: str, folder: str | None, python: str, yes: bool) -> None:
    """Show what the environment of an editor brings; once confirmed, make it: a folder with pinned packages.

    \b
    Example:
      pipeline editors install omnigen2
    """
    from stages.editors import catalogue
    from stages.editors.process import environment as environments
    from stages.editors.process.specs import ENVIRONMENTS

    spec = catalogue.find(name, "pipeline editors install")
    if name not in ENVIRONMENTS:
        raise ValueError(f"editor {name} has no environment to install; those that have one: {', '.join(ENVIRONMENTS)}")
    environment = ENVIRONMENTS[name]
    place = Path(folder) if folder else environment.folder
    if place.exists() and not place.is_dir():
        raise ValueError(f"--folder {place} is a file; name a directory")
    if shutil.which(python) is None:
        raise ValueError(f"--python {python} is not a program of this machine; name an interpreter, or leave the option out")
    pins = [line for line in environment.lock.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    size = f", about {environment.packages_gb:g} GB (estimated)" if environment.packages_gb else ""
    click.echo(f"{name} needs the environment {environment.name}, to be made in {place}:")
    click.echo(f"  {len(pins)} packages for Python {environment.python}{size}; licences: {environment.licences}")
    for pin in pins:
        click.echo(f"    {pin}")
    click.echo(f"  weights, from the Hub at the first use: {spec.hub}; licence: {spec.licence.name}. {spec.licence.terms}".rstrip())
    if not yes:
        click.confirm("install?", abort=True)
    environments.install(environment, place, python)
    click.echo(f"installed in {place}")
    if folder:
        click.echo(f"  settings of {name}: python: {environments.interpreter(place)}")
    for thing in environment.by_hand:
        click.echo(f"  left to you: {thing}; its interpreter is {environments.interpreter(place)}")
    if environment.checkout is not None and not (place / "checkout" / environment.checkout.file).exists():
        click.echo(f"  left to you: the authors' code, {environment.clone(place / 'checkout')}")


def _list() -> None:
    from pipeline.words import text_table
    from stages.editors import catalogue

    specs = catalogue.specs().values()
    lacks = {spec.name: _lack(spec) for spec in specs}
    rows = [
        [
            spec.name,
            "missing" if lacks[spec.name] else "installed",
            spec.licence.name if spec.licence.open else f"{spec.licence.name} (must be accepted)",
            _memory(spec),
            TESTED[spec.tested],
        ]
        for spec in specs
    ]
    click.echo(text_table(["editor", "state", "licence", "GPU memory", "tested with"], rows))
    for name, lack in lacks.items():
        if lack:
            click.echo(f"\n{name}: {lack}")
    for spec in specs:
        if spec.licence.terms:
            click.echo(f"\n{spec.name}: {spec.licence.terms}")


def _lack(spec: EditorSpec) -> str:
    """What is missing with the default settings."""
    needed = [name for name, field in spec.settings.model_fields.items() if field.is_required()]
    return f"settings.{needed[0]} has no default" if needed else spec.missing(spec.settings())


def _memory(spec: EditorSpec) -> str:
    return f"{spec.memory_gb:g} GB" if spec.memory_gb else "none"
