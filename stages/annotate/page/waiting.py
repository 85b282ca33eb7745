"""What waits for the lead without anybody noticing: experts who are not on the roster, and groups that nobody on it may rate.

In: the database, the people. Out: one sentence each, with what to do.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from stages.annotate.config import PlanConfig
from stages.annotate.page.assignment import OF_EXPERTS
from stages.annotate.page.roster import Person

_OPEN = """
SELECT g.group_id, g.round, group_concat(b.annotator) AS refused FROM groups g LEFT JOIN (
  SELECT group_id, annotator FROM assignments WHERE done = 1 OR lease_ends = 0 UNION SELECT group_id, annotator FROM elsewhere
) b USING (group_id) GROUP BY g.group_id
HAVING (SELECT count(*) FROM assignments a WHERE a.group_id = g.group_id AND a.done = 1) < g.wanted ORDER BY g.place
"""
"""Groups with an open slot, and who does not get them: they have rated or skipped them."""


def unknown_experts(roster: Sequence[Person], config: PlanConfig) -> list[str]:
    """A sentence for every name in ``annotate.plan.experts`` that is no annotator with a valid link."""
    known = {person.pseudonym for person in roster if person.role == "annotator" and not person.revoked}
    return [
        f"annotate.plan.experts names {name}, who is no annotator on the roster with a valid link: `pipeline annotate roster list`"
        for name in config.experts
        if name not in known
    ]


def groups_for_nobody(connection: sqlite3.Connection, people: Sequence[Mapping[str, Any]], config: PlanConfig) -> list[str]:
    """A sentence for every round with open groups that nobody may rate. people: as on the lead's page, with their stage."""
    able = {of["annotator"] for of in people if not of["revoked"] and of["stage"] not in ("paused", "failed")}
    experts = able.intersection(config.experts) if config.experts else able
    found: defaultdict[str, list[str]] = defaultdict(list)
    for group, round, refused in connection.execute(_OPEN):
        if (experts if round in OF_EXPERTS else able).issubset((refused or "").split(",")):
            found[round].append(group)
    return [
        f"{round}: {len(groups)} {'group waits' if len(groups) == 1 else 'groups wait'} (first {groups[0]}): every "
        + ("expert" if config.experts and round in OF_EXPERTS else "annotator")
        + " on the roster has rated or skipped it, or is paused, or there is none; `pipeline annotate roster add` adds a person"
        + (", whom annotate.plan.experts must name before the page is started again" if config.experts and round in OF_EXPERTS else "")
        for round, groups in found.items()
    ]
