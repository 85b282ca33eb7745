"""`pipeline status`: what a run directory holds, whether it is sound, and how far a broken-off step got."""

from __future__ import annotations

from pathlib import Path

from pipeline.commands.tables import text_table
from pipeline.flow import STEPS, counted, headline
from stages.annotate.quality import step as annotation_qc
from stages.engine.rundir import RunDir, StepFolder


def status(path: Path) -> str:
    """One line per step. Raises ``ValueError`` when there is no such run."""
    if not path.is_dir():
        raise ValueError(f"there is no run directory {path}; `pipeline run` makes one")
    run = RunDir(path)
    rows = []
    decision = run.step(annotation_qc.STEP).index()
    upstream = {annotation_qc.STEP: decision.fingerprint} if decision else {}
    for step in STEPS:
        folder = run.step(step.name)
        index = folder.index()
        if index is None:
            rows.append([step.name, _progress(folder), "", ""])
            continue
        stale = [name for name, fingerprint in index.inputs.items() if name in upstream and upstream[name] != fingerprint]
        damage = folder.damage(index)
        state = f"damaged: {damage}" if damage else f"stale: {stale[0]} changed" if stale else "done"
        upstream[step.name] = index.fingerprint
        rows.append([step.name, state, counted(index), headline(index)])
    return f"run directory: {run.path}\n\n" + text_table(["step", "state", "rows", "result"], rows)


def _progress(folder: StepFolder) -> str:
    log = folder.path / "units.jsonl"
    if log.exists():
        return f"begun: {sum(1 for _ in log.open())} units done"
    return "begun" if folder.path.exists() else "to do"
