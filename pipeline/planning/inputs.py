"""What a configuration reads: what of it is missing, and how many sources there are."""

from __future__ import annotations

import math
from pathlib import Path

from pipeline.planning import editor_benchmark
from stages.config import FlowConfig
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE, CandidatesInput, SourcesInput, TableSources, WorldSources
from stages.editors import catalogue
from stages.finetune.config import LargeFinetuneConfig
from stages.generate.candidate_plan import obstacles, planned


def missing(flow: FlowConfig) -> dict[str, list[str]]:
    """By step, what it reads or uses and what is not here; only steps that lack something."""
    found = {
        "generate": _missing_of_generate(flow),
        "filter": _missing_of_filter(flow),
        "finetune": _missing_of_finetune(flow),
        "evaluate-editor": editor_benchmark.missing(flow),
    }
    return {step: notes for step, notes in found.items() if notes}


def candidates(flow: FlowConfig) -> int | None:
    """Number of candidates made elsewhere; None where there are none, or they cannot be read."""
    if flow.generate is None or flow.generate.candidates is None:
        return None
    try:
        return _rows(flow.generate.candidates, "generate.candidates", edited=True)
    except ValueError:
        return None


def sources(flow: FlowConfig) -> tuple[int, int] | None:
    """Groups for training and for validation, as far as the configuration determines them; None where they cannot be counted."""
    assert flow.generate is not None
    config = flow.generate.sources
    share = VALIDATION_SHARE
    if isinstance(config, WorldSources):
        return config.train, config.validation
    try:
        if flow.generate.candidates is not None:  # no images are read here, so their sources are not known
            total = math.ceil(_rows(flow.generate.candidates, "generate.candidates", edited=True) / flow.generate.annotate)
        elif isinstance(config, TableSources):
            share = config.validation_share
            total = sum(table.take or table.expected or _rows(config.model_copy(update={"tables": (table,)})) for table in config.tables)
        else:
            total = _rows(config)
    except ValueError:
        return None
    held_out = round(total * share)
    return total - held_out, held_out


def _rows(config: SourcesInput | CandidatesInput | None, key: str = "generate.sources", *, edited: bool = False) -> int:
    """Rows of a data set. Raises ``ValueError`` where it cannot be read."""
    return sum(len(piece.rows) for piece in readers.plan(config, seed=0, world=None, unit_rows=1000, key=key, edited=edited))


def _missing_of_generate(flow: FlowConfig) -> list[str]:
    if flow.generate is None:
        return []
    notes = []
    unknown = []
    for number, choice in enumerate(flow.generate.editors):
        try:
            catalogue.find(choice.name, f"generate.editors.{number}.name")
        except ValueError as error:
            unknown.append(str(error))
    try:
        problems = unknown or (obstacles(planned(flow), flow.generate) if flow.generate.editors else [])
    except ValueError as error:
        problems = [str(error)]
    notes += [f"cannot run yet: {sentence}" for sentence in problems]
    config = flow.generate.sources
    if flow.generate.candidates is not None:
        try:
            _rows(flow.generate.candidates, "generate.candidates", edited=True)
        except ValueError as error:
            notes.append(f"cannot run yet: {error}")
    elif isinstance(config, TableSources):
        notes += [f"missing input: {table.path} ({table.name})" for table in config.tables if not _reachable(table.path)]
    elif not _reachable(getattr(config, "path", "")):
        notes.append(f"missing input: {getattr(config, 'path', '')}")
    return notes


def _missing_of_filter(flow: FlowConfig) -> list[str]:
    if flow.filter is None:
        return []
    notes = []
    path, model = getattr(flow.filter.input, "path", ""), flow.filter.model
    if not _reachable(path):
        notes.append(f"missing input: {path}")
    elif Path(path).is_file() and not Path(path).stat().st_size:
        notes.append(f"missing input: {path} is empty")
    if model is not None and not (Path(model) / "config.json").exists():
        notes.append(f"missing input: filter.model: there is no reward model at {model}")
    return notes


def _missing_of_finetune(flow: FlowConfig) -> list[str]:
    if flow.finetune is None or flow.filter is None:
        return []
    known = [choice.name for choice in flow.filter.selections]
    missing = [arm for arm in flow.finetune.arms if arm not in known]
    notes = [f"cannot run yet: finetune.arms: there is no selection {arm!r} in filter.selections" for arm in missing]
    if isinstance(flow.finetune, LargeFinetuneConfig):
        notes += _missing_of_editor(flow.finetune)
    return notes


def _missing_of_editor(config: LargeFinetuneConfig) -> list[str]:
    """Files of a pretrained editor, and its optimizer."""
    from finetune import families
    from reward.trainer.optimizer import check_installed

    notes, folder = [], config.editor.directory
    if Path(folder).is_dir():
        try:
            families.check_files(config.editor)
        except ValueError as error:
            notes.append(f"cannot run yet: finetune.editor: {error}")
    else:
        notes.append(f"missing input: {folder} (finetune.editor.directory)")
    try:
        check_installed(config.training.optimizer)
    except ValueError as error:
        notes.append(f"cannot run yet: finetune.training: {error}")
    return notes


def _reachable(path: str) -> bool:
    return not path or "://" in path or any(sign in path for sign in "*?[") or Path(path).exists()
