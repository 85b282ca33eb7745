"""Contracts that the filter completes: ``inspected`` with what its gates measure, ``scores`` with all that is known of an edit."""

from __future__ import annotations

import pyarrow as pa

from stages.engine import contracts
from stages.filter.gates.config import GATES

INSPECTED = pa.schema(
    [*contracts.INSPECTED, *((column, pa.type_for_alias(kind)) for gate in GATES.values() for column, kind in gate.columns.items())],
    metadata=contracts.INSPECTED.metadata,
)
"""The contract ``inspected`` with the measures of all gates; null where one does not apply."""

OF_EDITS = ["dataset", "instruction", "licence", "position", "image_bytes", "metadata"]
OF_INSPECTED = ["row_id", *(name for name in INSPECTED.names if name not in contracts.EDITS.names and name != "row_id")]
SCORED = pa.schema(
    [
        *contracts.SCORES,
        ("number", pa.int64()),  # of the row in the data set, from 0
        ("source_path", pa.string()),
        ("edited_path", pa.string()),
        *(contracts.EDITS.field(name) for name in OF_EDITS),
        *(INSPECTED.field(name) for name in OF_INSPECTED),
    ],
    metadata=contracts.SCORES.metadata,
)
"""The contract ``scores`` with what the data set and the inspection say of the edit."""
