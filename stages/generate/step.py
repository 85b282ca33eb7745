"""Generate: sources in, candidates out (paper 2.1: 12 candidates per source, 7 of them drawn for annotation).

Editors make the candidates here, or they were made elsewhere (:mod:`stages.generate.elsewhere`). With editors there are three phases: the
sources (:mod:`stages.generate.sources`), the edits of every editor (:mod:`stages.generate.crews`), and the draw for annotation
(:mod:`stages.generate.draw`). A source that cannot be read is quarantined. A candidate that an editor fails to make stays in the table with
status ``failed``, its reason and its error, and is never drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stages.context import Context
from stages.datasets import readers
from stages.editors.output_checks import content_filter
from stages.engine import steps
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, StepFolder
from stages.engine.units import publish_table
from stages.generate import candidate_plan, crews, draw, edit_units, elsewhere
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.config import GenerateConfig
from stages.generate.crews import Made
from stages.generate.sources import make_sources

STEP = steps.GENERATE
RUNNING = {"candidates", "workers", "unit_sources", "accept_licences"}
"""Settings on which no candidate depends that is made here."""


def run(context: Context) -> Index:
    """Make or complete the step; returns its index."""
    config: GenerateConfig = context.need("generate")
    if config.candidates is not None:
        return elsewhere.run(context, config, config.candidates)
    assert config.sources is not None, "the configuration has one of the two forms"
    flow = context.flow
    editors = candidate_plan.planned(flow)
    for sentence in candidate_plan.obstacles(editors, config):
        raise ValueError(sentence)
    if config.outputs.content_filter:
        content_filter(config.outputs.content_filter)  # one that is not installed is found here
    unused: Any = {
        **dict.fromkeys(RUNNING, True),
        "editors": {"__all__": {"workers", "num_gpus"}},
        "failures": {"seconds", "share", "after", "stop_all"},
    }
    settings = {
        "generate": config.model_dump(mode="json", exclude=unused),
        "world": flow.world.model_dump(mode="json") if flow.world else None,
        "seed": flow.seed,
    }
    folder = context.run.step(STEP)
    crews.check(context, folder, editors)  # before sources are read
    pieces = readers.plan(
        config.sources, seed=flow.seed, world=flow.world, unit_rows=config.unit_sources, key="generate.sources", edited=False
    )
    inputs = {
        "sources": settings_hash([piece.fingerprint for piece in pieces]),
        "editors": settings_hash([[editor.spec.name, editor.spec.revision, editor.settings_hash] for editor in editors]),
    }
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    sources = make_sources(context, folder, config, pieces)
    artifacts = dict(sources.artifacts)
    listed = [edit_units.listed(folder, part) for part in artifacts["sources"]]
    made = crews.make_candidates(context, folder, config, editors, listed)
    artifacts |= {"candidates": [part for of_editor in made for part in of_editor.parts]}
    candidates = folder.read_table("candidates", artifacts["candidates"], ["source_id", "candidate_id", "editor", "status"])
    drawn = draw.draw(draw.sound(candidates), config.annotate, flow.seed)
    artifacts["drawn"] = publish_table(folder, "drawn", draw.table(drawn))
    results = {
        "candidates_per_source": sum(editor.count for editor in editors),
        "annotated_per_source": draw.per_source(drawn),
        "failed_candidates": candidates["status"].to_pylist().count("failed"),
        "smaller_groups": sources.counts["out"] - sum(len(found) == config.annotate for found in drawn.values()),
        "editors": _figures(folder, editors, made, drawn),
        "near_duplicates": sources.near_duplicates,
    }
    index = folder.publish(
        draft,
        keep=sources.keep | edit_units.kept(folder, listed),
        artifacts=artifacts,
        counts=sources.counts,
        quarantined=sources.quarantined,
        results=results,
    )
    crews.tidy(folder)
    return index


def _figures(
    folder: StepFolder, editors: Sequence[PlannedEditor], made: Sequence[Made], drawn: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """What every editor of the plan made, in the order of the plan: the plan's quotas beside what became of them."""
    chosen = {candidate for candidates in drawn.values() for candidate in candidates}
    figures = []
    for editor, of_editor in zip(editors, made, strict=True):
        rows = folder.read_table("candidates", of_editor.parts, ["candidate_id", "status", "reason", "flags"]).to_pylist()
        reasons = Counter(row["reason"] for row in rows if row["status"] == "failed")
        flags = Counter(flag for row in rows for flag in row["flags"])
        figures.append(
            {
                "name": editor.label,
                "editor": editor.spec.name,
                "revision": editor.spec.revision,
                "licence": editor.spec.licence.name,
                "settings": editor.choice.settings,
                "seeds": [*editor.choice.seeds] or "drawn",
                "per_source": editor.count,
                "made": len(rows) - reasons.total(),
                "failed": dict(sorted(reasons.items())),
                "flagged": dict(sorted(flags.items())),
                "drawn": sum(row["candidate_id"] in chosen for row in rows),
            }
        )
    return figures
