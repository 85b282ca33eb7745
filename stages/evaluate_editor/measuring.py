"""Numbers of edits beside the judges': measures of the user's, and the reward model's scores. One unit is the edits of one piece.

A judge that was optimised for is pleased at the cost of what it does not see, and the reward model has chosen the training data: a system
whose reward rises while the judges' scores or what edits keep fall has found its weakness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts, storage
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Done, Unit, UnitOutput, Work
from stages.evaluate_editor.config import EvaluateEditorConfig, Measure
from stages.evaluate_editor.generation import at_size_of, image_of
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judging import JudgingPiece
from stages.evaluate_editor.preservation import changed_region
from stages.scoring.rows import model_folder, scorer_revision

REWARD = "reward"
"""Name of the reward model's scores among the measures."""
Measuring = Callable[[Sequence[Item], Sequence[np.ndarray]], list[float | None]]
"""From items and their edits, uint8 of their items' sizes, to a number per edit."""


def check(config: EvaluateEditorConfig) -> None:
    """Raise ``ValueError`` for a function that is not there, a name that is taken, and a reward model that is not there."""
    for number, measure in enumerate(config.measures):
        if measure.name in (REWARD, "psnr", "ssim"):
            raise ValueError(f"evaluate_editor.measures.{number}.name: {measure.name} is a measure of this project; take another name")
        _function(measure)
    if config.reward is not None and config.reward.model is not None:
        scorer_revision(config.reward.model)


def inputs(context: Context, config: EvaluateEditorConfig) -> dict[str, str]:
    """What the measures depend on beside the edits, by name: functions with their versions, the model's files."""
    found = {f"measure {one.name}": settings_hash(one.function, one.version) for one in config.measures}
    return found | ({} if config.reward is None else {"reward model": scorer_revision(model_folder(context, config.reward.model))})


def measure(context: Context, folder: StepFolder, config: EvaluateEditorConfig, pieces: Sequence[tuple[str, JudgingPiece]]) -> list[Done]:
    """The tables ``measures``, one ``Done`` per measure. ``pieces``: edits with the hash of their file."""
    made = []
    revisions = inputs(context, config)
    for name, opened in _opened(context, config).items():
        revision = revisions["reward model" if name == REWARD else f"measure {name}"]
        units = [Unit(settings_hash("measure", name, revision, sha256), piece, piece.count) for sha256, piece in pieces]
        made.append(
            run_units(
                folder,
                units,
                partial(make_work, context.flow.model_copy(update={"evaluate_editor": _located(config)}), name, opened),
                cluster=context.cluster,
                workers=config.workers,
                num_gpus=context.cluster.share_of_a_gpu(config.workers),
                phase=f"measure {name}",
                rows_are="edits",
            )
        )
    return made


def make_work(flow: FlowConfig, name: str, opened: Callable[[], Measuring]) -> Work:
    """What a worker does with a piece."""
    config = flow.evaluate_editor
    assert config is not None
    measuring = opened()

    def work(piece: JudgingPiece) -> UnitOutput:
        rows = storage.read_table(piece.edits).to_pylist()
        items = {(item.item_id, item.language): item for item in config.items.read(flow, piece.first, piece.count)}
        found = [(items[row["item_id"], row["language"]], image_of(row)) for row in rows]
        pairs = [(item, at_size_of(item.image, edit)) for item, edit in found if isinstance(item, Item) and edit is not None]
        values = iter(measuring([item for item, _ in pairs], [edit for _, edit in pairs]))
        given = [next(values) if isinstance(item, Item) and edit is not None else None for item, edit in found]
        columns = ("item_id", "language", "arm")
        made = [
            {column: row[column] for column in columns} | {"measure": name, "value": value} for row, value in zip(rows, given, strict=True)
        ]
        return UnitOutput({"measures": contracts.table("measures", made)}, rows_in=piece.count, rows_out=len(rows))

    return work


def means(table: pa.Table) -> dict[str, dict[str, dict[str, Any]]]:
    """Per measure and system ``{"mean", "n"}``: over the edits that have a value, and how many they are."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in table.to_pylist():
        of_system = values.setdefault(row["measure"], {}).setdefault(row["arm"], [])
        of_system += [] if row["value"] is None else [row["value"]]
    return {
        name: {arm: {"mean": round(math.fsum(some) / len(some), 5) if some else None, "n": len(some)} for arm, some in of_name.items()}
        for name, of_name in values.items()
    }


def _opened(context: Context, config: EvaluateEditorConfig) -> Mapping[str, Callable[[], Measuring]]:
    found: dict[str, Callable[[], Measuring]] = {one.name: partial(of_function, one) for one in config.measures}
    return found | ({} if config.reward is None else {REWARD: partial(_of_reward, model_folder(context, config.reward.model))})


def _located(config: EvaluateEditorConfig) -> EvaluateEditorConfig:
    return config.model_copy(update={"items": config.items.absolute()})


def _function(measure: Measure) -> Callable[..., Any]:
    try:
        found = resolve_name(measure.function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"evaluate_editor.measures: {measure.name}: there is no {measure.function} ({error}); install its package"
        ) from error
    if not callable(found):
        raise ValueError(f"evaluate_editor.measures: {measure.name}: {measure.function} is no function but of type {type(found).__name__}")
    return found


def of_function(measure: Measure) -> Measuring:
    """The user's function. It raises ``ValueError`` where that is not there, fails, or gives no number."""
    function = _function(measure)

    def measuring(items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[float | None]:
        found = []
        for item, edit in zip(items, edited, strict=True):
            changed = changed_region(item.image, edit, item.reference)
            try:
                value = function(item.image, edit, changed)
            except Exception as error:  # a user's function raises anything
                raise ValueError(
                    f"{measure.function} fails for item {item.item_id} ({type(error).__name__}: {error}); repair it"
                ) from error
            found.append(_number(measure, value, item))
        return found

    return measuring


def _number(measure: Measure, value: Any, item: Item) -> float | None:
    """Raises ``ValueError`` for what is no number: a mean over it would hide that."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{measure.function} gives {str(value)[:60]!r} for item {item.item_id}; return a number, or None for no value")
    return number


def _of_reward(model: Path) -> Measuring:
    from reward import EditSample, SampleError, score
    from stages.scoring.rows import load_model

    scorer = load_model(model)

    def measuring(items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[float | None]:
        samples = [
            EditSample(Image.fromarray(item.image), item.instruction, Image.fromarray(edit))
            for item, edit in zip(items, edited, strict=True)
        ]
        return [None if isinstance(one, SampleError) else round(one.overall_mean, 5) for one in score(model=scorer, samples=samples)]

    return measuring
