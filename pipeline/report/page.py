"""Put the page together: sections in, one HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.blocks import Section
from pipeline.report.published import STEPS, Published
from pipeline.report.sections import arms, filtering, flow, headline, provenance, quarantine, ratings, reward, samples
from stages import storage
from stages.rundir import RunDir

NAME = "report.html"
SECTIONS = (
    (headline, STEPS),
    (flow, STEPS),
    (samples, ("generate",)),
    (ratings, ("annotate", "preferences")),
    (reward, ("train-reward", "evaluate-reward")),
    (filtering, ("filter",)),
    (arms, ("finetune", "evaluate-editor")),
    (quarantine, STEPS),
    (provenance, STEPS),
)
"""The sections with the steps that they tell of; one whose steps are all outside the run's configuration is left out."""


def build(run: RunDir) -> Path:
    """Write ``report.html`` into the run directory and return its path; steps that are not done are named with their commands.

    Reads what the steps published and nothing else. Raises ``ValueError`` when the run directory does not exist or an index is damaged.
    """
    if not run.path.is_dir():
        raise ValueError(f"there is no run directory {run.path}; make one with `pipeline run`")
    published = Published(run)
    return write(
        run.path / NAME,
        title=published.path.name,
        headline=headline.sentence(published),
        sections=[module.section(published) for module, steps in SECTIONS if any(published.planned(s) or published.done(s) for s in steps)],
    )


def write(path: Path, *, title: str, headline: str, sections: Sequence[Section]) -> Path:
    """Write sections as a page of their own, which needs nothing beside it; returns its path."""
    environment = Environment(
        loader=PackageLoader("pipeline.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    html = environment.get_template("template.html").render(title=title, headline=headline, css=Markup(css), sections=sections)
    storage.publish_bytes(path, html.encode())
    return path
