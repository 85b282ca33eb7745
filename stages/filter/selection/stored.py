"""A selection as two files: ``NAME.parquet`` with the samples, ``NAME.json`` with everything needed to reproduce it.

The description names the rule, the hash of the scores, for ``like`` the hash of the other selection, and the sha256 of the table. A
selection is read only while its file has that hash and the scores are those it was made from.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.engine import storage
from stages.engine.contracts import SELECTION
from stages.engine.ids import settings_hash
from stages.engine.rundir import Part, StepFolder
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.rule import Selection

FOLDER = "selections"
REMEDY = "delete it and make the selection again with `pipeline select`, or `pipeline run filter` for one of the configuration"


def table_name(name: str) -> str:
    """File of a selection's table, relative to the step's folder."""
    return f"{FOLDER}/{name}.parquet"


def description_name(name: str) -> str:
    """File of a selection's description, relative to the step's folder."""
    return f"{FOLDER}/{name}.json"


def scores_hash(parts: Sequence[Part]) -> str:
    """Hash of the scores that selections are made from."""
    return settings_hash([part.sha256 for part in parts])


def publish(
    step: StepFolder,
    config: SelectionConfig,
    made: Selection,
    scores: Sequence[Part],
    like: Path | None,
    before: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Write table and description; returns sha256 by file.

    like: table of the selection named by ``like``. before: description of the selection of this name that is there. Raises ``ValueError``
    when that has the same recipe, which determines every byte, and other bytes.
    """
    of_like = None if like is None else storage.sha256_of(like)
    recipe = {"selection": config.model_dump(mode="json"), "scores": scores_hash(scores), "like": of_like}
    table = step.path / table_name(config.name)
    folder = storage.partial_folder(table)
    try:
        rows, sha256 = storage.publish_rows(folder / table.name, SELECTION, made.rows)
        if before is not None and before["sha256"] != sha256 and all(before.get(key) == value for key, value in recipe.items()):
            raise ValueError(
                f"selection {config.name} does not replay: made again from the same scores it has other bytes, so it was made with another "
                f"version of this program or its libraries; choose another name, or delete {step.path / description_name(config.name)}"
            )
        (folder / table.name).replace(table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    description = recipe | {"rows": rows, "sha256": sha256, "strata": [asdict(stratum) for stratum in made.strata]}
    described = storage.publish_checked(step.path / description_name(config.name), description)
    return {table_name(config.name): sha256, description_name(config.name): described}


def names(step: StepFolder, scores: Sequence[Part]) -> list[str]:
    """Names of the selections of these scores, sorted."""
    present = scores_hash(scores)
    there = sorted(path.stem for path in (step.path / FOLDER).glob("*.json"))
    return [name for name in there if (describe(step, name) or {}).get("scores") == present]


def describe(step: StepFolder, name: str) -> dict[str, Any] | None:
    """The description of a selection, or None where there is none. Raises ``ValueError`` when it is damaged."""
    path = step.path / description_name(name)
    if not path.exists():
        return None
    found = storage.read_checked(path, REMEDY)
    missing = [key for key in ("selection", "scores", "rows", "sha256") if key not in found]
    if missing:
        raise ValueError(f"{path} is damaged: it has no {missing[0]}; {REMEDY}")
    return found


def find(step: StepFolder, name: str, scores: Sequence[Part]) -> Path:
    """The table of a selection of these scores, a file.

    Raises ``ValueError`` when there is none, it is of other scores, or its file is damaged."""
    description = describe(step, name)
    path = step.path / table_name(name)
    if description is None or not path.exists():
        there = ", ".join(names(step, scores)) or "none"
        raise ValueError(f"{step.path} has no selection {name} of its present scores (there: {there}); make it with `pipeline select`")
    if description.get("scores") != scores_hash(scores):
        raise ValueError(f"selection {name} in {step.path} was made from other scores; make it again with `pipeline select`")
    if storage.sha256_of(path) != description.get("sha256"):
        raise ValueError(f"{path} is damaged: its sha256 is not the one in {description_name(name)}; make it again with `pipeline select`")
    return path
