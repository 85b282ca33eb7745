"""``evaluation.json``: one table of results per judge, with a column per language and subset of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stages.config import FlowConfig
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.judges.judge import Judge
from stages.evaluate_editor.systems import COPY, EXACT
from stages.evaluate_editor.verdict import JudgedEdit

REWARD_CAVEAT = (
    "The reward model's scores are no independent judgement: they chose the training data, so they favour the arms that they chose. A "
    "reward that rises where judges' scores or preservation fall is a sign that it was exploited."
)
Edits = Mapping[str, Sequence[JudgedEdit]]
"""By system."""


def evaluate(edits: Edits, config: EvaluateEditorConfig, judge: Judge, seed: int) -> dict[str, Any]:
    """One judge's results: those of the headline column, and ``columns`` where the benchmark has several.

    ``language``: of the headline, empty where it is of all; ``arms``: figures per system; ``differences``: paired, against the reference;
    ``wins``: per task against the reference, how many items were won, tied and lost. ``seed``: of the resamples.
    """
    columns = {title: _column(_part(edits, language, subset), config, seed) for title, language, subset in config.items.columns()}
    headline, language, _ = config.items.columns()[0]
    every = [edit.verdict for of_system in edits.values() for edit in of_system]
    snapshots = sorted({verdict.snapshot for verdict in every if verdict.snapshot})
    tokens = {name: sum(verdict.tokens[side] for verdict in every) for side, name in enumerate(("prompt_tokens", "completion_tokens"))}
    return (
        columns[headline]
        | {"headline": headline, "language": language, "reference_arm": config.reference_arm, "averaging": config.items.averaging}
        | ({"columns": columns} if len(columns) > 1 else {})
        | {"scores": list(judge.shown)}
        | {"judge": {"name": judge.label, "revision": judge.revision} | judge.record() | ({"snapshots": snapshots} if snapshots else {})}
        | ({"cost": tokens | _price(judge, *tokens.values())} if any(tokens.values()) else {})
    )


def _column(edits: Edits, config: EvaluateEditorConfig, seed: int) -> dict[str, Any]:
    from stages.evaluate_editor.summary import Convention, difference, summarise, wins

    convention = Convention(config.items.averaging, config.items.tasks, config.bootstrap, seed)
    reference = edits[config.reference_arm]
    compared = {name: judged for name, judged in edits.items() if name not in (config.reference_arm, COPY, EXACT)}
    return {
        "arms": {name: summarise(judged, convention) for name, judged in edits.items()},
        "differences": {name: difference(reference, judged, convention).to_json(decimals=None) for name, judged in compared.items()},
        "wins": {name: wins(reference, judged, convention) for name, judged in compared.items()},
    }


def _part(edits: Edits, language: str, subset: str) -> dict[str, list[JudgedEdit]]:
    """The edits of a language and subset; empty texts mean all."""
    return {
        name: [edit for edit in judged if language in ("", edit.language) and (not subset or subset in edit.subsets)]
        for name, judged in edits.items()
    }


def _price(judge: Judge, prompt: int, completion: int) -> dict[str, float]:
    price = judge.cost(prompt, completion)
    return {} if price is None else {"usd": round(price, 4)}


def preservation(edits: pa.Table) -> dict[str, dict[str, Any]]:
    """Per system: mean PSNR and SSIM outside the changed region, over the edits that have one, and the mean share of changed pixels.

    ``n``: edits that there are; ``measured``: of these, edits with pixels outside.
    """
    found: dict[str, dict[str, Any]] = {}
    every = edits.to_pylist()
    for name in dict.fromkeys(row["arm"] for row in every):
        rows = [row for row in every if row["arm"] == name and row["changed_share"] is not None]
        outside = [row for row in rows if row["psnr"] is not None]
        found[name] = {measure: _mean([row[measure] for row in outside]) for measure in ("psnr", "ssim")}
        found[name] |= {"changed_share": _mean([row["changed_share"] for row in rows]), "n": len(rows), "measured": len(outside)}
    return found


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 5) if values else None


def caveats(config: EvaluateEditorConfig, flow: FlowConfig) -> list[str]:
    """What a reader of the table must know."""
    of_judges = [caveat for judge in (config.judge, *config.further_judges) for caveat in judge.caveats]
    of_base = [flow.finetune.base_caveat] if flow.finetune is not None and flow.finetune.base_caveat else []
    of_reward = [REWARD_CAVEAT] if config.reward is not None else []
    return list(dict.fromkeys([*config.items.remarks(flow), *of_judges, *of_base, *of_reward]))
