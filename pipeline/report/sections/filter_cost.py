"""The cost of scoring: seconds of the workers, edits per second, model and device, from the log of units and the manifest."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report.blocks import Block, Fact, Facts
from pipeline.report.published import Published

STEP = "filter"


def cost(published: Published) -> list[Block]:
    """Key numbers of the scoring units that the present scores come from; nothing where no log is left."""
    units = _units(published, "scores")
    seconds = sum(unit["seconds"] for unit in units)
    if not seconds:
        return []
    rows = sum(unit["rows_in"] for unit in units)
    revision = str(published.results(STEP).get("scorer_revision", ""))
    step = published.manifest.get("steps", {}).get(STEP, {})
    facts = [
        Fact("Scoring", words.duration(seconds), f"of workers, over {words.count(len(units))} units; reading and decoding included"),
        Fact("Edits per second", f"{rows / seconds:.3g}", "and worker"),
    ]
    inspecting = sum(unit["seconds"] for unit in _units(published, "inspected"))
    if inspecting:
        facts.append(Fact("Inspection", words.duration(inspecting), "of workers, before scoring"))
    model, idle = (sum(unit.get("figures", {}).get(name, 0.0) for unit in units) for name in ("model_seconds", "idle_seconds"))
    if model + idle:
        note = "of the workers' time; the rest goes into reading and preparing images, which a tiny model does not hide"
        facts.append(Fact("The model computes", words.share(model / (model + idle)), note))
    if isinstance(step.get("seconds"), (int, float)):
        facts.append(
            Fact("The whole step", words.duration(step["seconds"]), "wall time of its last run; units finished earlier are not counted")
        )
    facts.append(Fact("Device", _device(step.get("machine", {})), f"model revision {revision[:8]}" if revision else ""))
    return [Facts(facts)]


def _units(published: Published, artifact: str) -> list[dict[str, Any]]:
    """Logged units of one kind whose files the index still lists."""
    listed = {part.path for parts in published.index(STEP).artifacts.values() for part in parts}
    found = {}
    for unit in published.lines(STEP, "units.jsonl"):
        if artifact in unit["parts"] and any(part["path"] in listed for part in unit["parts"].values()):
            found[unit["key"]] = unit
    return list(found.values())


def _device(machine: dict[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    if gpus:
        return f"{len(gpus)} × {gpus[0]}"
    return f"{machine['cores']} CPU cores" if machine.get("cores") else "not noted"
