"""A new data set is read as edits of filter, as sources of generate and as a reference of contamination."""

from pathlib import Path

import numpy as np

from pipeline import config
from stages.contamination import references
from stages.datasets import readers
from stages.engine import images
from stages.filter import inspection
from stages.generate import sources as generate

for number in range(3):
    for role, value in (("before", number), ("after", 255 - number)):
        Path(f"{number}.{role}.png").write_bytes(images.png(np.full((16, 16, 3), value, np.uint8)))
    Path(f"{number}.txt").write_text(f"make it brighter {number}" if number else " ")
Path("2.after.png").unlink()
Path("x.yaml").write_text(
    "name: x\n"
    "world: {}\n"
    "generate:\n"
    "  sources: {dataset: pair-folder, path: .}\n"
    "  editors: [{name: world/quill, seeds: [0, 1]}]\n"
    "  annotate: 2\n"
    "filter:\n"
    "  input: {dataset: pair-folder, path: .}\n"
    "  selections: [{name: everything, rule: all}]\n"
    "  contamination: {references: [{name: mine, input: {dataset: pair-folder, path: .}}]}\n"
)
flow = config.load(Path("x.yaml")).flow

(sources,) = readers.plan(flow.generate.sources, seed=0, world=None, unit_rows=9, key="generate.sources", edited=False)
output = generate.make_reading()(sources)
assert output.tables["source_rows"]["row_id"].to_pylist() == ["1", "2"]
assert [row.reason for row in output.quarantine] == ["empty-instruction"]

Path("2.after.png").write_bytes(Path("1.after.png").read_bytes())
(edits,) = readers.plan(flow.filter.input, seed=0, world=None, unit_rows=9)
assert inspection.make_work()(edits).tables["inspected"]["row_id"].to_pylist() == ["1", "2"]

(unit,) = references.units(flow.filter.contamination.references[0], "filter.contamination")
assert references.make_work()(unit.payload).tables["references"]["item"].to_pylist() == ["1", "2"]
