"""What becomes of the edits that a unit made: they are candidates, they have failed, or they are made again.

A unit puts its edits into tables by what the checks say of them: ``candidates`` for those without a flag, ``failed``, and one table per
set of flags. The policies (``generate.outputs``) and the number of tries (``generate.failures.tries``) are applied to these tables, by the
driver, so another policy makes no edit again but those that it asks for. A table whose edits are kept is published as it is. What is made
again of one table is a unit of its own, so it does not depend on the policy for other flags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stages.editors.config import OutputsConfig
from stages.editors.editor import Failure
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import UnitRecord
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import Retry

CANDIDATES, FAILED = "candidates", "failed"
FLAGGED = "flagged-"
"""Name of a table of edits with the same flags, before these."""


def table_of(row: Mapping[str, Any]) -> str:
    """The table of a unit that an edit belongs to. ``row``: of the contract ``candidates``, its status and flags."""
    if row["status"] == "failed":
        return FAILED
    return FLAGGED + "+".join(row["flags"]) if row["flags"] else CANDIDATES


def is_kept(row: Mapping[str, Any], outputs: OutputsConfig) -> bool:
    """Whether an edit is a candidate as it is. ``row`` as in :func:`table_of`."""
    return row["status"] != "failed" and outputs.policy(row["flags"]) == "keep"


@dataclass
class Settled:
    """``kept``: published tables of candidates. ``failed``: rows of candidates that have failed. ``again``: to be made again, by table."""

    kept: list[Part] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    again: list[list[Retry]] = field(default_factory=list)


def settle(folder: StepFolder, record: UnitRecord, retries: Sequence[Retry] | None, config: GenerateConfig) -> Settled:
    """What becomes of the edits of a unit; ``retries`` as in its task."""
    found, before = Settled(), {retry.candidate_id: retry for retry in retries or ()}
    for name, part in record.parts.items():
        if name == "quarantine" or not part.rows:
            continue
        flags = name.removeprefix(FLAGGED).split("+") if name.startswith(FLAGGED) else []
        policy = config.outputs.policy(flags)
        if name != FAILED and policy == "keep":
            found.kept.append(part)
            continue
        again = []
        for row in _without_images(folder, part):
            retry = before.get(row["candidate_id"], Retry(row["candidate_id"]))
            if name == FAILED and retry.failures + 1 < config.failures.tries:
                again.append(retry.after_failure())
            elif policy == "new-seed" and retry.new_seed < config.outputs.new_seeds:
                again.append(retry.after_flags(row["seed"], flags))
            else:
                found.failed.append(row if name == FAILED else _dropped(row))
        if again:
            found.again.append(again)
    return found


def _without_images(folder: StepFolder, part: Part) -> list[dict[str, Any]]:
    columns = ["candidate_id", "source_id", "editor", "editor_revision", "seed", "settings_hash", "status", "reason", "error", "licence"]
    rows = folder.read_table("candidates", [part], [*columns, "flags", "record", "metadata"]).to_pylist()
    return [row | {"image": None} for row in rows]


def _dropped(row: Mapping[str, Any]) -> dict[str, Any]:
    """A flagged edit as one that has failed."""
    flags = row["flags"]
    measured = ", ".join(f"{name} {value:g}" for name, value in json.loads(row["record"])["measures"].items())
    failure = Failure(flags[0], f"the edit is flagged as {' and '.join(flags)} ({measured})")
    return {**row, "status": "failed", "reason": failure.reason, "error": failure.message, "flags": [], "record": "{}", "metadata": "{}"}
