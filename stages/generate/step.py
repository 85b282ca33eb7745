"""Generate: sources in, candidates out (paper 2.1: 12 candidates per source, 7 of them sampled for annotation).

Unit of resume: a slice of sources with all their candidates. A source that cannot be read is quarantined; a candidate that an editor
fails to make stays in the table with status ``failed`` and its error, and is never chosen for annotation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from stages.config import EditorChoice, GenerateConfig, WorldConfig
from stages.context import Context
from stages.datasets.sources import readers as sources
from stages.editors import editors
from stages.engine import contracts, images, steps
from stages.engine.contracts import Quarantined
from stages.engine.ids import content_id, settings_hash, uniform
from stages.engine.run_units import run_units
from stages.engine.rundir import Index, Part, StepFolder
from stages.engine.units import Unit, UnitOutput, Work

STEP = steps.GENERATE


def run(context: Context) -> Index:
    """Make or complete the step; returns its index."""
    config: GenerateConfig = context.need("generate")
    flow = context.flow
    for choice in config.editors:
        editors.check_name(choice.name)
    planned = Counter(_plan(config.editors))
    (name, seed), times = planned.most_common(1)[0]
    if times > 1:
        raise ValueError(f"generate.editors: {name} with seed {seed} is there {times} times and would make equal candidates; name it once")
    if len(planned) < config.annotate:
        raise ValueError(
            f"generate.annotate: {config.annotate} of {len(planned)} candidates per source cannot be sampled; add editors or seeds"
        )
    settings = {
        "generate": config.model_dump(mode="json", exclude={"workers", "unit_sources"}),
        "world": flow.world.model_dump(mode="json") if flow.world else None,
        "seed": flow.seed,
    }
    pieces = sources.plan(config.sources, seed=flow.seed, drawing=flow.world, rows=config.unit_sources)
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs={"sources": settings_hash(pieces)}, force=context.force)
    if done:
        return done
    editor_settings = {name: settings[name] for name in ("world", "seed")} | {
        "editors": settings["generate"]["editors"],
        "annotate": config.annotate,
    }
    units = [Unit(settings_hash(STEP, piece, editor_settings), sources.placed(piece), piece["count"]) for piece in pieces]
    work = partial(_make_work, config.editors, config.annotate, flow.seed, flow.world)
    result = run_units(folder, units, work, cluster=context.cluster, workers=config.workers, rows_are="sources")
    artifacts = result.artifacts()
    _refuse_twins(folder, artifacts)
    failed = _failed(folder, artifacts)
    results = {"candidates_per_source": len(planned), "annotated_per_source": config.annotate, "failed_candidates": failed}
    return folder.publish(draft, **result.tables(), results=results)


def _refuse_twins(folder: StepFolder, artifacts: Mapping[str, Sequence[Part]]) -> None:
    """Raise ``ValueError`` when two rows are the same source; their candidates would have the same ids."""
    seen: set[str] = set()
    rows = folder.read_table("sources", artifacts["sources"], ["source_id", "instruction"])
    for source_id, instruction in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if source_id in seen:
            raise ValueError(f"generate.sources: two rows have the same image and the instruction {instruction!r}; remove one")
        seen.add(source_id)


def _failed(folder: StepFolder, artifacts: Mapping[str, Sequence[Part]]) -> int:
    """How many candidates failed. Raises ``ValueError`` with an editor's words when all of them did."""
    rows = folder.read_table("candidates", artifacts["candidates"], ["status", "error"])
    statuses, errors = rows["status"].to_pylist(), [text for text in rows["error"].to_pylist() if text]
    failed = statuses.count("failed")
    if failed == len(statuses):
        raise ValueError(f"none of the {failed:,} candidates could be made: {errors[0] if errors else 'there are no sources'}")
    return failed


def _plan(choices: Sequence[EditorChoice]) -> list[tuple[str, int]]:
    return [(choice.name, seed) for choice in choices for seed in choice.seeds]


def _make_work(choices: Sequence[EditorChoice], annotate: int, seed: int, world: WorldConfig | None) -> Work:
    opened = {choice.name: editors.open_editor(choice.name, world) for choice in choices}
    world_hash = settings_hash(world.model_dump(mode="json") if world else None)

    def work(piece: dict[str, Any]) -> UnitOutput:
        rows, candidates, quarantine = [], [], []
        for entry in sources.load(piece):
            if isinstance(entry, Quarantined):
                quarantine.append(entry)
                continue
            rows.append(entry)
            candidates += _candidates(entry, opened, _plan(choices), annotate, seed, world_hash)
        tables = {"sources": contracts.table("sources", rows), "candidates": contracts.table("candidates", candidates)}
        return UnitOutput(tables, rows_in=piece["count"], rows_out=len(rows), quarantine=quarantine)

    return work


def _candidates(
    source: Mapping[str, Any],
    opened: Mapping[str, editors.Editor],
    plan: Sequence[tuple[str, int]],
    annotate: int,
    seed: int,
    settings: str,
) -> list[dict[str, Any]]:
    """All candidates of a source; ``annotate`` of the sound ones are sampled by a seeded hash of their ids."""
    rows = []
    for name, editor_seed in plan:
        editor = opened[name]
        row = {
            "candidate_id": content_id("candidate", source["source_id"], name, editor.revision, editor_seed, settings),
            "source_id": source["source_id"],
            "editor": name,
            "editor_revision": editor.revision,
            "seed": editor_seed,
            "settings_hash": settings,
            "image": None,
            "status": "ok",
            "error": "",
            "annotate": False,
            "metadata": "{}",
        }
        try:
            edited = editor.edit(source, editor_seed)
            row |= {"image": images.stored(edited.image), "metadata": edited.metadata}
        except (ValueError, OSError, RuntimeError) as error:
            row |= {"status": "failed", "error": str(error)}
        rows.append(row)
    sound = sorted((uniform("annotate", seed, row["candidate_id"]), row["candidate_id"]) for row in rows if row["status"] == "ok")
    chosen = {candidate_id for _, candidate_id in sound[:annotate]}
    return [row | {"annotate": row["candidate_id"] in chosen} for row in rows]
