"""A new editor is named in a configuration, checked by `pipeline plan`, and makes the candidates of a unit of generate."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline import config
from pipeline.planning.plan import plan
from reward.inputs.decoding import decode
from stages.datasets import readers
from stages.editors import catalogue
from stages.engine import contracts, storage
from stages.generate.edit_task import EditTask
from stages.generate.edits import EditWork
from stages.generate.rows import source_row

pixels = np.zeros((16, 24, 3), np.uint8)
pixels[0, 0] = 255
Image.fromarray(pixels).save("a.png")
Path("sources.jsonl").write_text(json.dumps({"image": "a.png", "instruction": "mirror it"}) + "\n")
Path("x.yaml").write_text(
    "name: x\n"
    "generate:\n"
    "  sources: {dataset: table, tables: [{name: mine, path: sources.jsonl}]}\n"
    "  editors: [{name: mirror, seeds: [0, 1]}]\n"
    "  annotate: 2\n"
)
flow = config.load(Path("x.yaml")).flow
catalogue.find("mirror", "generate.editors")
assert "cannot run yet" not in plan(flow, Path("run"))
(piece,) = readers.plan(flow.generate.sources, seed=0, world=None, unit_rows=10, key="generate.sources", edited=False)
table = contracts.table("sources", [source_row(entry, 0.1) for entry in readers.load(piece)])
Path("sources.parquet").write_bytes(storage.table_bytes(table))
candidates = EditWork(flow, 0)(EditTask("sources.parquet", 2, "journal", 60.0)).tables["candidates"].to_pylist()
assert [(row["editor"], row["status"]) for row in candidates] == [("mirror", "ok")] * 2
assert (
    np.asarray(decode(candidates[0]["image"]["bytes"]))[0, -1].all() and np.asarray(decode(candidates[1]["image"]["bytes"]))[-1, -1].all()
)
