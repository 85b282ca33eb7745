"""A new gate is configured, measures, decides, and is in the report; old runs are inspected again for its column."""

import tempfile

import numpy as np

from pipeline.report.sections import gates as section
from reward.inputs.decoding import DECODER
from stages.config import FlowConfig
from stages.datasets.readers import Edit, Slice
from stages.engine import contracts, images, tables
from stages.engine.ids import settings_hash
from stages.filter import decide, inspection
from stages.filter.pair import Pair
from stages.filter.schemas import INSPECTED

gates = {"blank": {"action": "drop", "contrast": 1.0}}
selections = [{"name": "selected", "rule": "all"}]
flow = FlowConfig.model_validate(
    {"name": "x", "filter": {"input": {"dataset": "triplets", "path": "x.jsonl"}, "selections": selections, "gates": gates}}
)
assert flow.filter is not None

noise = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
edits = [
    Edit(str(row), f"x.jsonl[{row}]", "triplets", images.png(noise), None, f"make it {row}", images.png(edited), None, "en", "", "")
    for row, edited in enumerate((noise[::-1], np.full_like(noise, 90)))
]
rows = [inspection.row_of(pair) for edit in edits if isinstance(pair := inspection.pair_of(edit), Pair)]
table = contracts.table("inspected", rows, INSPECTED)
assert "edited_contrast" in table.schema.names and table["edited_contrast"].to_pylist()[1] == 0.0
with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as database:
    database.keep("inspected", table.to_batches(), table.schema)
    dropped = database.table(f"SELECT {decide.dropped_alone(flow.filter.gates)} AS dropped FROM inspected ORDER BY position")
    assert dropped["dropped"].to_pylist() == [False, True]
    decide.read(database, flow.filter.gates)
    inspection.find_copies(database)
    summary = decide.decide(database, flow.filter.gates)
    caught = [row for batch in decide.gated(database, flow.filter.gates) for row in batch.to_pylist()]
assert summary["blank"]["dropped"] == 1 and ("blank", "drop") in {(row["gate"], row["action"]) for row in caught}

piece = Slice("triplets", "", {}, [(0, "a")])
assert inspection.unit_key(piece) != settings_hash("inspect", inspection.REVISION, DECODER, piece.fingerprint)

assert "edits of one colour, deviation 0–255" in section._row("blank", summary["blank"])
