"""The report of a run has the new section, in its place and in the page's list of sections."""

from __future__ import annotations

from pathlib import Path

from pipeline.report.page import build
from stages.engine.rundir import RunDir

run = RunDir(Path("run"))
run.path.mkdir()
run.note("generate", {"seconds": 3.0})
run.note("filter", {"seconds": 9.5})
page = build(run).read_text(encoding="utf-8")
assert '<a href="#slowest">Slowest step</a>' in page
assert page.index('<section id="slowest"') < page.index("filter took 9.5 s.") < page.index('<section id="next"')
