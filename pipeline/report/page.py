"""Put the page together: sections in, one HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.blocks import Section
from pipeline.report.pictures import Originals
from pipeline.report.published import Published
from pipeline.report.sections import (
    arms,
    editors,
    evidence,
    filtering,
    finetuning,
    galleries,
    headline,
    provenance,
    quarantine,
    ratings,
    reward,
    samples,
    todo,
)
from stages.engine import storage
from stages.engine.rundir import RunDir

SECTIONS = (headline, evidence, galleries, arms, finetuning, reward, filtering, ratings, editors, samples, todo, quarantine, provenance)
"""The sections in their order. Each module has ``section(published)``, and ``STEPS``, the steps that it describes: a section is left out
where those are all outside the run's configuration, and where it has no blocks.
"""


def build(run: RunDir) -> Path:
    """Write ``report.html`` into the run directory and return its path; steps that are not done are named with their commands.

    Images of the galleries are written in full size to ``report-images`` beside it. Reads what the steps published and nothing else.
    Raises ``ValueError`` when the run directory does not exist or an index is damaged.
    """
    if not run.path.is_dir():
        raise ValueError(f"there is no run directory {run.path}; make one with `pipeline run`")
    published = Published(run)
    sections = [
        module.section(published) for module in SECTIONS if any(published.planned(step) or published.done(step) for step in module.STEPS)
    ]
    html = render(
        published.path.name,
        "Run report",
        headline.verdict(published),
        sections,
        "what the steps of this run published",
        published.originals,
    )
    published.originals.write()
    storage.publish_bytes(published.page, html)
    return published.page


def render(title: str, kind: str, sentence: str, sections: Sequence[Section], made_from: str, originals: Originals | None = None) -> bytes:
    """A page of sections as HTML with everything inside it; the last line gives its size. ``kind`` is shown above the title.

    originals: the images in full size that the sections link to.
    """
    environment = Environment(
        loader=PackageLoader("pipeline.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    facts = {
        "title": title,
        "kind": kind,
        "headline": sentence,
        "css": Markup(css),
        "sections": [section for section in sections if section.blocks],
        "made_from": made_from,
        "images": originals.name if originals else "",
    }
    template = environment.get_template("template.html")
    size = len(template.render(**facts, size="0.00 MB").encode())
    return template.render(**facts, size=f"{size / 1e6:.2f} MB").encode()
