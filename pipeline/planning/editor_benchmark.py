"""The step evaluate-editor in a plan: its size, and what of its inputs is not here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stages.config import FlowConfig
from stages.editors import catalogue


def described(flow: FlowConfig) -> str:
    """How many systems, items, judges and calls."""
    config = flow.evaluate_editor
    assert config is not None
    systems = 1 + config.items.has_references + len(config.editors) + len(config.edits)
    if flow.finetune is not None:
        systems += 1 + len(flow.finetune.arms)
    elif not config.editors and not config.edits:
        return "needs the section finetune, or other editors or edits"
    try:
        count = config.items.count(flow)
    except ValueError:
        return f"{systems} systems; the items cannot be counted"
    judges = [config.judge, *config.further_judges]
    calls = systems * count * sum(judge.calls for judge in judges)
    asked = f"; about {calls:,} calls" if calls else ""
    return f"{systems} systems x {count:,} items, judge {' and '.join(judge.label for judge in judges)}{asked}"


def missing(flow: FlowConfig) -> list[str]:
    """Items, editors, folders and keys that are not here."""
    config = flow.evaluate_editor
    if config is None:
        return []
    notes = []
    checks: list[Callable[[], object]] = [
        lambda: config.items.count(flow),
        *(judge.check for judge in (config.judge, *config.further_judges)),
    ]
    checks += [lambda entry=entry: catalogue.find(entry.editor, "evaluate_editor.editors") for entry in config.editors]
    for check in checks:
        try:
            check()
        except ValueError as error:
            notes.append(f"cannot run yet: {error}")
    return notes + [f"missing input: {folder.path} ({folder.name})" for folder in config.edits if not Path(folder.path).is_dir()]
