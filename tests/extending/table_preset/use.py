"""A published table with its own columns is a preset: a configuration names it, and its rows are read."""

import json
from pathlib import Path

from pipeline import config
from stages.datasets import readers

Path("a.png").write_bytes(b"not decoded here")
Path("t.jsonl").write_text(json.dumps({"before": "a.png", "text": "make it red", "after": "a.png"}) + "\n")
Path("x.yaml").write_text(
    "name: x\nfilter:\n  input: {dataset: table, preset: my-set, path: t.jsonl}\n  selections: [{name: everything, rule: all}]\n"
)
flow = config.load(Path("x.yaml")).flow
(piece,) = readers.plan(flow.filter.input, seed=0, world=None, unit_rows=9)
(row,) = readers.fetch(piece)
assert (row.dataset, row.instruction, row.licence) == ("my-set", "make it red", "CC0")
