"""The phases of the project on the lead's page: what each has reached, and the command that begins the next one.

In: the database, the plan. Out: one entry per phase in the order of a project (docs/annotation-quality.md, Rounds).
"""

from __future__ import annotations

import sqlite3
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
    """groups: in the plan; wanted, done: ratings of whole groups; people: who have submitted any; met: whether all targets of the phase are
    met, None without ratings or target. Everybody rates the calibration groups, so these have no wanted number."""
    plan = {
        row["round"]: row
        for row in connection.execute("SELECT round, count(*) AS groups, sum(wanted) AS wanted FROM groups GROUP BY round")
    }
    done = {
        row["round"]: row
        for row in connection.execute(
            "SELECT round, count(*) AS done, count(DISTINCT annotator) AS people FROM assignments WHERE done = 1 GROUP BY round"
        )
    }
    # Slots of a group that was rated in another round before are filled by those ratings.
    filled = dict(
        connection.execute(
            "SELECT g.round, count(*) FROM groups g JOIN assignments a USING (group_id) "
            "WHERE a.done = 1 AND a.round != g.round GROUP BY g.round"
        )
    )
    found = []
    for name, command in COMMANDS.items():
        calibration = name == CALIBRATION
        checked = [target["met"] for target in targets if target["round"] == name and target["met"] is not None]
        found.append(
            {
                "round": name,
                "groups": len(packet.plan.calibration) if calibration else plan[name]["groups"] if name in plan else 0,
                "wanted": None if calibration else plan[name]["wanted"] - filled.get(name, 0) if name in plan else 0,
                "done": done[name]["done"] if name in done else 0,
                "people": done[name]["people"] if name in done else 0,
                "met": all(checked) if checked else None,
                "command": command,
            }
        )
    return found
