"""Put the page together: sections in, one HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.blocks import Section
from pipeline.report.published import Published
from pipeline.report.sections import arms, filtering, flow, headline, provenance, quarantine, ratings, reward, samples
from stages.engine import storage
from stages.engine.rundir import RunDir

NAME = "report.html"
SECTIONS = (headline, flow, samples, ratings, reward, filtering, arms, quarantine, provenance)
"""The sections in their order. Each module has ``section(published)``, and ``STEPS``, the steps that it describes: a section whose steps
are all outside the run's configuration is left out.
"""


def build(run: RunDir) -> Path:
    """Write ``report.html`` into the run directory and return its path; steps that are not done are named with their commands.

    Reads what the steps published and nothing else. Raises ``ValueError`` when the run directory does not exist or an index is damaged.
    """
    if not run.path.is_dir():
        raise ValueError(f"there is no run directory {run.path}; make one with `pipeline run`")
    published = Published(run)
    sections = [
        module.section(published) for module in SECTIONS if any(published.planned(step) or published.done(step) for step in module.STEPS)
    ]
    html = render(published.path.name, "Run report", headline.sentence(published), sections, "what the steps of this run published")
    path = run.path / NAME
    storage.publish_bytes(path, html)
    return path


def render(title: str, kind: str, sentence: str, sections: Sequence[Section], made_from: str) -> bytes:
    """A page of sections as HTML with everything inside it; the last line gives its size. ``kind`` is shown above the title."""
    environment = Environment(
        loader=PackageLoader("pipeline.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    facts = {"title": title, "kind": kind, "headline": sentence, "css": Markup(css), "sections": sections, "made_from": made_from}
    template = environment.get_template("template.html")
    size = len(template.render(**facts, size="0.00 MB").encode())
    return template.render(**facts, size=f"{size / 1e6:.2f} MB").encode()
