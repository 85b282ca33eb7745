"""Generate: sources in, candidates out (paper 2.1: 12 candidates per source, 7 of them sampled for annotation).

Editors make the candidates here, or they were made elsewhere (:mod:`stages.generate.elsewhere`). With editors the unit of resume is a slice
of sources with all their candidates. A source that cannot be read is quarantined. A candidate that an editor fails to make stays in the
table with status ``failed`` and its error, and is never chosen for annotation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE, SourcesInput, TableSources
from stages.datasets.slices import Slice
from stages.editors import catalogue
from stages.editors.editor import Editor, EditRequest, Failure
from stages.engine import contracts, images, steps
from stages.engine.contracts import Quarantined
from stages.engine.ids import content_id, settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Index, Part, StepFolder
from stages.engine.units import Unit, UnitOutput, Work
from stages.generate import elsewhere
from stages.generate.config import EditorChoice, GenerateConfig
from stages.generate.rows import sample_for_annotation, source_row

STEP = steps.GENERATE


def run(context: Context) -> Index:
    """Make or complete the step; returns its index."""
    config: GenerateConfig = context.need("generate")
    if config.candidates is not None:
        return elsewhere.run(context, config, config.candidates)
    assert config.sources is not None, "the configuration has one of the two forms"
    flow = context.flow
    for choice in config.editors:
        catalogue.find(choice.name, "generate.editors")
    planned = Counter(_plan(config.editors))
    (name, seed), times = planned.most_common(1)[0]
    if times > 1:
        raise ValueError(f"generate.editors: {name} with seed {seed} is there {times} times and would make equal candidates; name it once")
    if len(planned) < config.annotate:
        raise ValueError(
            f"generate.annotate: {config.annotate} of {len(planned)} candidates per source cannot be sampled; add editors or seeds"
        )
    settings = {
        "generate": config.model_dump(mode="json", exclude={"candidates", "split_distance", "workers", "unit_sources"}),
        "world": flow.world.model_dump(mode="json") if flow.world else None,
        "seed": flow.seed,
    }
    pieces = readers.plan(
        config.sources, seed=flow.seed, world=flow.world, unit_rows=config.unit_sources, key="generate.sources", edited=False
    )
    inputs = {"sources": settings_hash([piece.fingerprint for piece in pieces])}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    editor_settings = {name: settings[name] for name in ("world", "seed")} | {
        "editors": settings["generate"]["editors"],
        "annotate": config.annotate,
    }
    units = [Unit(_unit_key(piece, config.sources, editor_settings), piece, len(piece.rows)) for piece in pieces]
    (twice, times), *_ = Counter(unit.key for unit in units).most_common(1)
    if times > 1:
        location = next(unit.payload.location for unit in units if unit.key == twice)
        raise ValueError(f"generate.sources: the same rows of {location} are listed {times} times; name each table once")
    work = partial(_make_work, flow, config)
    result = run_units(folder, units, work, cluster=context.cluster, workers=config.workers, rows_are="sources")
    artifacts = result.artifacts()
    _reject_duplicates(folder, artifacts)
    failed = _failed(folder, artifacts)
    results = {"candidates_per_source": len(planned), "annotated_per_source": config.annotate, "failed_candidates": failed}
    return folder.publish(draft, **result.tables(), results=results)


def _unit_key(piece: Slice, sources: SourcesInput, settings: Mapping[str, Any]) -> str:
    """Name of a slice with its candidates. A fingerprint is of the text of the rows: where their images are, and the split, come on top.

    A reader that states the content of its rows needs neither.
    """
    beside = () if piece.content is not None else (piece.location, piece.images, _validation_share(sources))
    return settings_hash(STEP, piece.fingerprint, settings, *beside)


def _reject_duplicates(folder: StepFolder, artifacts: Mapping[str, Sequence[Part]]) -> None:
    """Raise ``ValueError`` when two rows are the same source, since their candidates would have the same ids."""
    seen: set[str] = set()
    rows = folder.read_table("sources", artifacts["sources"], ["source_id", "instruction"])
    for source_id, instruction in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if source_id in seen:
            raise ValueError(f"generate.sources: two rows have the same image and the instruction {instruction!r}; remove one")
        seen.add(source_id)


def _failed(folder: StepFolder, artifacts: Mapping[str, Sequence[Part]]) -> int:
    """How many candidates failed. Raises ``ValueError`` with an editor's error message when all of them failed."""
    rows = folder.read_table("candidates", artifacts["candidates"], ["status", "error"])
    statuses, errors = rows["status"].to_pylist(), [text for text in rows["error"].to_pylist() if text]
    failed = statuses.count("failed")
    if failed == len(statuses):
        raise ValueError(f"none of the {failed:,} candidates could be made: {errors[0] if errors else 'there are no sources'}")
    return failed


def _plan(choices: Sequence[EditorChoice]) -> list[tuple[str, int]]:
    return [(choice.name, seed) for choice in choices for seed in choice.seeds]


def _make_work(flow: FlowConfig, config: GenerateConfig) -> Work:
    specs = {choice.name: catalogue.specs()[choice.name] for choice in config.editors}
    of_editor = {name: spec.settings() for name, spec in specs.items()}
    opened = {name: spec.open(of_editor[name], flow) for name, spec in specs.items()}
    settings = {name: settings_hash(spec.identity(of_editor[name], flow)) for name, spec in specs.items()}

    def work(piece: Slice) -> UnitOutput:
        rows, candidates, quarantine = [], [], []
        for entry in readers.load(piece):
            if isinstance(entry, Quarantined):
                quarantine.append(entry)
                continue
            source = source_row(entry, _validation_share(config.sources))
            rows.append(source)
            made = [
                _candidate(source, name, seed, opened[name], specs[name].revision, settings[name]) for name, seed in _plan(config.editors)
            ]
            candidates += sample_for_annotation(made, config.annotate, flow.seed)
        tables = {"sources": contracts.table("sources", rows), "candidates": contracts.table("candidates", candidates)}
        return UnitOutput(tables, rows_in=len(piece.rows), rows_out=len(rows), quarantine=quarantine)

    return work


def _validation_share(config: SourcesInput | None) -> float:
    return config.validation_share if isinstance(config, TableSources) else VALIDATION_SHARE


def _candidate(source: Mapping[str, Any], name: str, seed: int, editor: Editor, revision: str, settings: str) -> dict[str, Any]:
    """Row of the ``candidates`` contract; that of an edit that failed has the error and no image."""
    row = {
        "candidate_id": content_id("candidate", source["source_id"], name, revision, seed, settings),
        "source_id": source["source_id"],
        "editor": name,
        "editor_revision": revision,
        "seed": seed,
        "settings_hash": settings,
        "image": None,
        "status": "ok",
        "error": "",
        "annotate": False,
        "metadata": "{}",
    }
    try:
        image = decode(source["image"]["bytes"])
        (edited,) = editor.edit([EditRequest(image, source["instruction"], seed, source["dataset"], source["metadata"])])
    except (ValueError, OSError, RuntimeError) as error:
        return row | {"status": "failed", "error": str(error)}
    if isinstance(edited, Failure):
        return row | {"status": "failed", "error": edited.message}
    return row | {"image": images.stored(images.png(np.asarray(edited.image))), "metadata": edited.metadata}
