"""What the editors of a configuration will cost: edits, GPU hours, memory, model loads, disk and licences."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline import words
from pipeline.planning.filter_cost import IMAGE_BYTES
from stages.config import FlowConfig
from stages.engine import unit_log
from stages.engine.rundir import StepFolder
from stages.generate.candidate_plan import PlannedEditor, planned

GPU_GIGABYTES = (24, 40, 48, 80, 141)
"""Memory of GPU kinds: L4 and RTX 4090, A100, L40S and A6000, A100 and H100, H200."""
GPUS = (1, 8, 64)


@dataclass(frozen=True)
class Rate:
    """Seconds per edit on one GPU, None where nobody says; and who does."""

    seconds: float | None
    source: str


def table(flow: FlowConfig, sources: int, step: StepFolder) -> str:
    """The estimate as text, for so many sources; with the rates of a run that has made some of the edits. Raises ``ValueError`` as
    :func:`stages.generate.candidate_plan.planned` does."""
    assert flow.generate is not None
    editors = planned(flow)
    rates = [rate(editor, step) for editor in editors]
    rows = [_row(editor, one, sources) for editor, one in zip(editors, rates, strict=True)]
    header = ["editor", "edits", "GPU hours", "seconds per edit", "GPU memory", "disk", "licence"]
    per_source = sum(editor.count for editor in editors)
    names = {editor.label for editor in editors}
    annotate = flow.generate.annotate
    least, most = annotate // len(names), -(-annotate // len(names))
    shares = f"{least}" if least == most else f"{least} or {most}"
    about = (
        f"candidates: {sources:,} sources x {per_source} = {sources * per_source:,} edits; {annotate} of each source are drawn for "
        f"annotation, {shares} of each editor as far as it has them\n"
    )
    text = about + words.text_table(header, rows)
    models = [editor for editor in editors if editor.spec.memory_gb]
    if not models:
        return text
    known = [
        editor.count * sources * (one.seconds or 0) / 3600 for editor, one in zip(editors, rates, strict=True) if editor.spec.memory_gb
    ]
    unknown = [editor.name for editor, one in zip(editors, rates, strict=True) if one.seconds is None and editor.spec.memory_gb]
    if not any(known):
        return f"{text}\nGPU hours are not known: nobody says how long an edit by {words.listing(unknown)} takes" if unknown else text
    hours = ", ".join(_share(sum(known), gpus, len(models)) for gpus in GPUS)
    without = f"; without {words.listing(unknown)}, whose speed is not known" if unknown else ""
    return f"{text}\n{_hours(sum(known))} GPU hours: {hours}{without}"


def _share(hours: float, gpus: int, models: int) -> str:
    loads = gpus + models - 1
    on, often = ("GPU" if gpus == 1 else "GPUs"), ("once" if loads == 1 else f"at most {loads} times")
    return f"{words.duration(hours / gpus * 3600)} on {gpus} {on} (a model is loaded {often})"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else "less than 0.1" if hours < 0.1 else f"{hours:.1f}"


def rate(editor: PlannedEditor, step: StepFolder) -> Rate:
    """That of the edits in the run's log of units, else that of the editor's spec."""
    figures = [record.figures for record in unit_log.sound(step).values() if record.family.endswith(f" {editor.id}")]
    edits = sum(found.get("edits", 0.0) for found in figures)
    if edits:
        return Rate(sum(found.get("seconds", 0.0) for found in figures) / edits, f"measured in this run, {edits:,.0f} edits")
    if editor.spec.seconds:
        return Rate(editor.spec.seconds, editor.spec.seconds_source)
    return Rate(None, "unknown")


def _row(editor: PlannedEditor, rate: Rate, sources: int) -> list[str]:
    spec, edits = editor.spec, editor.count * sources
    seeds = f"{len(editor.choice.seeds)} listed" if editor.choice.seeds else f"{editor.count} drawn"
    kinds = [gigabytes for gigabytes in GPU_GIGABYTES if gigabytes >= spec.memory_gb]
    memory = f"{spec.memory_gb:g} GB: " + (f"GPUs of {kinds[0]} GB" if kinds else "more than one GPU") if spec.memory_gb else "no GPU"
    seconds = rate.source if rate.seconds is None else f"{rate.seconds:.3g} ({rate.source})"
    hours = "–" if rate.seconds is None or not spec.memory_gb else _hours(edits * rate.seconds / 3600)
    disk = words.size(edits * IMAGE_BYTES) if spec.memory_gb else "–"
    licence = spec.licence.name + ("" if spec.licence.open else ", to be accepted")
    return [f"{editor.name}, seeds: {seeds}", f"{edits:,}", hours, seconds, memory, disk, licence]
