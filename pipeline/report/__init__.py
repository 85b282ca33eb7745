"""The report: one static HTML page of what a run did, made from what its steps published.

``page`` puts it together; ``sections`` decide what is told, one file per section; ``charts`` draw; ``template.html`` and ``page.css``
are the look. The page has everything inside it: it opens offline and needs no script.
"""

from pipeline.report.page import build

__all__ = ["build"]
