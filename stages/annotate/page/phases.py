"""The phases of the project on the lead's page: what each has reached, and the command that begins the next one.

In: the database, the plan. Out: one entry per phase in the order of a project (docs/annotation-quality.md, Rounds).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from stages.annotate.page.packet import Packet
from stages.annotate.ratings.rating_task import ADJUDICATION, BENCHMARK, CALIBRATION, PILOT, PRODUCTION, RANKING, REANNOTATION

COMMANDS = {
    PILOT: "pipeline annotate export --round pilot --limit 30",
    CALIBRATION: "pipeline annotate export annotate.plan.calibration=20",
    PRODUCTION: "pipeline annotate export",
    REANNOTATION: "pipeline annotate ingest, qc, then export --groups RUN/annotation-qc/reannotate.csv",
    ADJUDICATION: "pipeline annotate ingest, qc, then export --round adjudication --groups RUN/annotation-qc/adjudicate.csv",
    BENCHMARK: "pipeline annotate export --round benchmark --groups LIST, then build-bench",
    RANKING: "pipeline annotate export --round ranking --groups LIST, then consensus --method ranking",
}
"""The command that begins a phase, in the order of the phases."""


def phases(connection: sqlite3.Connection, packet: Packet, targets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """groups: in this phase now, or rated in it before they went into another one; wanted, done: ratings of whole groups; people: who have
    submitted any; met: whether all targets of the phase are met, None without ratings or target. Everybody rates the calibration groups, so
    these have no wanted number."""
    plan = _by_round(connection, "SELECT round, count(*) AS groups, sum(wanted) AS wanted FROM groups GROUP BY round")
    done = _by_round(
        connection, "SELECT round, count(*) AS done, count(DISTINCT annotator) AS people FROM assignments WHERE done = 1 GROUP BY round"
    )
    both = "FROM groups g JOIN assignments a USING (group_id) WHERE a.done = 1 AND a.round != g.round"
    # Slots of a group that was rated in another round before are filled by those ratings.
    filled = _by_round(connection, f"SELECT g.round, count(*) AS done {both} GROUP BY g.round")
    left = _by_round(connection, f"SELECT a.round, count(DISTINCT group_id) AS groups, count(*) AS done {both} GROUP BY a.round")
    found = []
    for name, command in COMMANDS.items():
        calibration = name == CALIBRATION
        checked = [target["met"] for target in targets if target["round"] == name and target["met"] is not None]
        found.append(
            {
                "round": name,
                "groups": left[name]["groups"] + (len(packet.plan.calibration) if calibration else plan[name]["groups"]),
                "wanted": None if calibration else plan[name]["wanted"] - filled[name]["done"] + left[name]["done"],
                "done": done[name]["done"],
                "people": done[name]["people"],
                "met": all(checked) if checked else None,
                "command": command,
            }
        )
    return found


def _by_round(connection: sqlite3.Connection, query: str) -> defaultdict[str, Counter[str]]:
    """The counts of every round; 0 where there are none."""
    rows = [dict(row) for row in connection.execute(query)]
    return defaultdict(Counter, {row.pop("round"): Counter(row) for row in rows})
