"""Filter: score edits once, select by rules that read scores only, write shards (paper 4.4: the best 20K of 46K).

In: a data set of edits and a reward model. Out: ``scores`` and ``edits`` (what was scored, in the same order, images by reference), ``examples`` (the
edits at the ends of the scores, with images), one table per selection in ``selections/``, webdataset shards, and a quarantine. Three phases, each
resumable: a slice of edits is the unit of scoring, a shard the unit of writing, and a selection is cheap enough to be made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages import contracts, duplicates, edits, selection, shard_sets, shards, storage, train_reward
from stages.config import FilterConfig, SelectionConfig
from stages.context import Context
from stages.ids import settings_hash
from stages.rundir import Index, Part, StepFolder
from stages.scoring import DECIMALS, score_rows, scorer_revision
from stages.units import Done, Quarantined, Unit, UnitOutput, Work, publish_unit, run_units

STEP = "filter"
EXAMPLES = 12
"""Edits kept with their images at each end of the scores and of the uncertainty, to look at."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def run(context: Context) -> Index:
    """Score, select and write what is missing; returns the step's index."""
    config: FilterConfig = context.need("filter")
    model = _model(context, config)
    revision = scorer_revision(model)
    slices = edits.plan(config.input, seed=context.flow.seed, world=context.flow.world, unit_rows=config.unit_rows)
    step = context.run.step(STEP)
    settings = {"filter": config.model_dump(mode="json", exclude={"model", "workers", "num_gpus"}), "seed": context.flow.seed}
    inputs = {"reward model": revision, "edits": _fingerprint(slices)}
    key, done = step.begin(settings=settings, inputs=inputs, force=context.force)
    if done and _shards_are_there(step, config):
        return step.require()
    scored = _score(context, config, step, model, revision, slices)
    artifacts = duplicates.artifacts(scored)
    scores, delivered = _read(step, artifacts, "scores"), _read(step, artifacts, "edits")
    artifacts["examples"] = _examples(step, scores, delivered, slices)
    tables = {entry.name: selection.select(scores, entry) for entry in config.selections}
    files = {}
    for entry in config.selections:
        files |= _publish_selection(step, entry, tables[entry.name], scores)
    sets = shard_sets.plan(step, config.shards, tables, scores.append_column("position", delivered["position"]), slices)
    for entry, content in shard_sets.write(context, step, sets, workers=config.workers).items():
        files |= _shard_files(step, config, entry, content)
    index = Index(
        step=STEP,
        key=key,
        settings=settings,
        inputs=inputs,
        artifacts=artifacts,
        files=files,
        counts=scored.counts() | {"selected": sum(table.num_rows for table in tables.values())},
        quarantined=scored.quarantined(),
        results=_results(config, revision, scores, delivered, tables),
    )
    return step.publish(index)


def select(context: Context, config: SelectionConfig) -> pa.Table:
    """Another selection from existing scores, published beside those of the configuration; returns its table.

    It is no part of the step's index, so nothing that is made from the configured selections becomes outdated. Raises ``ValueError`` when the name
    is taken by a selection of another rule and ``--force`` is off.
    """
    step = context.run.step(STEP)
    index = step.require()
    configured = {entry["name"]: entry for entry in index.settings["filter"]["selections"]}
    if config.name in configured:
        if configured[config.name] != config.model_dump(mode="json"):
            raise ValueError(f"selection {config.name} is one of the configuration's, with another rule or size; choose another name")
        return pq.read_table(_table_path(step, config.name), partitioning=None)
    description = step.path / "selections" / f"{config.name}.json"
    if description.exists() and not context.force and storage.read_json(description)["selection"] != config.model_dump(mode="json"):
        raise ValueError(f"selection {config.name} exists with another rule or size; choose another name or delete {description}")
    scores = step.read("scores")
    table = selection.select(scores, config)
    _publish_selection(step, config, table, scores)
    return table


def write_shards(context: Context, config: SelectionConfig) -> str:
    """Write the shards of a selection made before; returns their folder."""
    flow: FilterConfig = context.need("filter")
    step = context.run.step(STEP)
    index = step.require()
    path = _table_path(step, config.name)
    if not path.exists():
        raise ValueError(f"there is no selection {config.name} in {step.path}; make it with `pipeline select --name {config.name}`")
    slices = edits.plan(flow.input, seed=context.flow.seed, world=context.flow.world, unit_rows=flow.unit_rows)
    if _fingerprint(slices) != index.inputs["edits"]:
        raise ValueError("the edits are not those that were scored; restore them, or run the filter step again with --force")
    scored = step.read("scores").append_column("position", step.read("edits", ["position"])["position"])
    sets = shard_sets.plan(step, flow.shards, {config.name: pq.read_table(path, partitioning=None)}, scored, slices)
    shard_sets.write(context, step, sets, workers=flow.workers)
    return sets[0].folder


def shard_urls(context: Context, name: str) -> list[str]:
    """Paths or URLs of a selection's shards, in their order."""
    folder = shard_sets.folder_of(context.run.step(STEP), context.need("filter").shards, name)
    return [f"{folder}/{shard['name']}" for shard in storage.read_json(f"{folder}/{shards.INDEX}")["shards"]]


def shards_hash(context: Context, name: str) -> str:
    """Hash that names the content of a selection's shards."""
    return storage.sha256_of(f"{shard_sets.folder_of(context.run.step(STEP), context.need('filter').shards, name)}/{shards.INDEX}")


def make_scoring(model: Path, revision: str, batch_size: int) -> Work:
    """Load the model and return the work of one slice: tables ``edits`` and ``scores`` with the same samples in the same order."""
    import torch

    from reward import EditSample, RewardModel

    torch.set_num_threads(1)
    loaded = RewardModel.from_directory(model).to("cuda" if torch.cuda.is_available() else "cpu")

    def work(piece: edits.Slice) -> UnitOutput:
        references, rows, quarantine = [], [], []
        entries = edits.load(piece)
        while batch := list(islice(entries, batch_size)):  # so that only one batch of images is in memory
            sound = [entry for entry in batch if isinstance(entry, edits.Edit)]
            quarantine += [entry for entry in batch if isinstance(entry, Quarantined)]
            samples = [(edit.sample_id, EditSample(edit.source, edit.instruction, edit.edited), edit.task) for edit in sound]
            languages = [edit.language for edit in sound]
            scored = score_rows(loaded, samples, revision=revision, batch_size=batch_size, languages=languages)
            ...
        return UnitOutput({}, len(piece.rows), len(rows), quarantine)

    return work
