"""Filter: score edits once, select by rules that read scores only, write shards (paper 4.4: the best 20K of 46K).

In: a data set of edits and a reward model. Out: ``inspected`` and ``gated`` (stages/filter/inspection.py), ``contamination``
(stages/filter/decontamination.py), ``scores`` (what was scored, with all that is known of it; stages/filter/scored.py), ``examples``
(the edits at the ends of the scores, with images), one table per selection in ``selections/``, webdataset shards, and a quarantine. Four
phases, each resumable: a slice of edits is the unit of inspection and of scoring, a shard the unit of writing, and selections are made
again each time. Edits in = scored + quarantined + gated, always; what decontamination drops is gated.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reward.model.origin import OTHER_DOMAIN
from stages.contamination import compare
from stages.contamination.references import of_training
from stages.context import Context
from stages.datasets import readers as edits
from stages.datasets.seen import as_they_are
from stages.engine import contracts, steps, storage, tables
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_jobs
from stages.engine.rundir import Index, StepFolder
from stages.engine.tables import Tables
from stages.engine.units import Done
from stages.filter import decide as gates
from stages.filter import decontamination, examples, inspection, shard_sets, summary, worker_counts
from stages.filter import scored as scores_of
from stages.filter import scoring as edit_scoring
from stages.filter.config import FilterConfig
from stages.filter.gates.config import comparing
from stages.filter.schemas import SCORED
from stages.filter.selection import rule as selection
from stages.filter.selection import stored
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.scored_rows import ScoredRows
from stages.scoring.rows import model_folder, scorer_revision, warn_of_other_domain
from stages.shards import format as shards
from stages.shards.read import folder_of

STEP = steps.FILTER


def run(context: Context) -> Index:
    """Score, select and write what is missing; returns the step's index."""
    config: FilterConfig = context.need("filter")
    model = model_folder(context, config.model)
    revision = scorer_revision(model)
    warning = warn_of_other_domain(model, [config.input.dataset])
    step = context.run.step(STEP)
    slices = _slices(context, config, step)
    settings = {
        "filter": config.model_dump(mode="json", exclude={"model", "inspect_workers", "workers", "num_gpus", "prepare_workers"}),
        "seed": context.flow.seed,
    }
    references = compare.units(config.contamination, decontamination.KEY)
    training = of_training(model) if config.contamination.training else None
    inputs = {"reward model": revision, "edits": _fingerprint(slices)} | gates.inputs(config.gates) | compare.inputs(references)
    draft, done = step.begin(settings=settings, inputs=inputs, force=context.force)
    if done and _shards_are_there(step, config):
        return done
    scoring = edit_scoring.Scoring(context, config, step, model, revision, slices)
    inspected = inspection.decide(config, step, slices, _inspected(context, config, step, slices, scoring, references, training))
    inspected, compared = decontamination.check(context, config, step, inspected, references, training)
    scoring.rest(inspected.left)
    applied = [name for name, entry in inspected.summary.items() if entry["action"] != "off"]
    if compared["references"]:  # where there were none, nobody is to take edits for compared
        applied.append(compare.NAME)
    scored = scores_of.assemble(step, scoring.units, inspected, applied)
    counts, quarantined = inspection.balance(inspected, scored.out, scored.quarantined)
    artifacts = inspection.merge(inspected.artifacts, scored.artifacts)
    if not scored.out:
        left_out = quarantined | inspected.dropped() | ({compare.NAME: compared["dropped"]} if compared["dropped"] else {})
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in left_out.items())
        aside = step.read_table("quarantine", artifacts["quarantine"][:1], ["position", "message"]).slice(0, 1).to_pylist()
        first = "".join(f"; the first, {row['position']}: {row['message']}" for row in aside)
        raise ValueError(f"none of the {counts['in']:,} edits could be scored ({reasons}{first}); correct filter.input or filter.gates")
    domain: dict[str, Any] = {OTHER_DOMAIN: warning} if warning else {}
    files: dict[str, str] = {}
    with _planning(step) as scratch:
        with tables.opened(scratch) as database:
            rows = ScoredRows.of(database, step, artifacts, scored.flags)
            made: dict[str, Path] = {}
            for entry in config.selections:
                files |= stored.publish(step, entry, selection.select(rows, entry, made), artifacts["scores"], made.get(entry.like or ""))
                made[entry.name] = step.path / stored.table_name(entry.name)
            artifacts["examples"] = examples.publish(step, rows, slices, config.selections, made)
            about = _about_shards(rows, compared, made, domain)
            results = summary.of(rows, config, made)
            sets = shard_sets.assign(step, config.shards, made, rows, slices, about, scratch)
        for name, content in shard_sets.write(context, step, sets, workers=worker_counts.inspecting(config, context.cluster)).items():
            files |= _shard_files(step, config, name, content)
    results |= {"scorer_revision": revision, "gates": inspected.summary, compare.NAME: compared, "flags": scored.flags} | domain
    return step.publish(
        draft,
        keep=scored.units,
        artifacts=artifacts,
        files=files,
        counts=counts,
        quarantined=quarantined,
        results=results,
    )


def _inspected(
    context: Context,
    config: FilterConfig,
    step: StepFolder,
    slices: Sequence[edits.Slice],
    scoring: edit_scoring.Scoring,
    references: compare.Planned,
    training: Path | None,
) -> Done:
    """Inspect what is not inspected yet, and score each slice once it is inspected, unless that is done after the last one."""
    cluster = context.cluster
    if comparing(config.gates):
        scoring.check()
        inspect = inspection.job(slices, workers=worker_counts.inspecting(config, cluster))
        return run_jobs(step, [inspect], cluster=cluster, workers=inspect.workers, rows_are="edits")
    inspect = inspection.job(slices, workers=worker_counts.beside_scoring(config, cluster))
    places = {unit.key: place for place, unit in enumerate(inspect.units)}
    with tables.opened(step.path) as database:
        dropping = decontamination.dropping(database, context, config, step, references, training)
        score = scoring.beside(places, lambda record: inspection.left_in(database, step, record, config.gates, dropping))
        workers = inspect.workers + score.workers if score.num_gpus else max(inspect.workers, score.workers)
        return run_jobs(
            step,
            [inspect, score],
            cluster=cluster,
            workers=workers,
            rows_are="edits",
            finished=lambda record: scoring.finished(record) if record.family else None,
        )


def select(context: Context, config: SelectionConfig) -> int:
    """Another selection from existing scores, published beside those of the configuration; returns the number of its samples.

    It is no part of the step's index, so nothing that is made from the configured selections becomes outdated. One that is there with
    the same recipe is made again and must come out the same; so is one of the configuration. Raises ``ValueError`` when the name is taken
    by a selection of another rule and ``--force`` is off.
    """
    step = context.run.step(STEP)
    index = step.sound(files=False)
    parts = index.artifacts["scores"]
    configured = {entry["name"]: entry for entry in index.settings["filter"]["selections"]}
    if config.name in configured and configured[config.name] != config.model_dump(mode="json"):
        raise ValueError(f"selection {config.name} is one of the configuration's, with another rule or size; choose another name")
    before = stored.describe(step, config.name)
    others = {config.like: stored.find(step, config.like, parts)} if config.like is not None else {}
    if before is not None and not context.force and before["selection"] != config.model_dump(mode="json"):
        description = step.path / stored.description_name(config.name)
        raise ValueError(f"selection {config.name} exists with another rule or size; choose another name or delete {description}")
    step.remove_scratch()
    with tables.opened(step.path) as database:
        made = selection.select(_rows(database, step, index), config, others)
        stored.publish(step, config, made, parts, others.get(config.like or ""), before)
    return made.count


def write_shards(context: Context, config: SelectionConfig) -> str:
    """Write the shards of a selection made before; returns their folder."""
    flow: FilterConfig = context.need("filter")
    step = context.run.step(STEP)
    index = step.sound(files=False)
    made = {config.name: stored.find(step, config.name, index.artifacts["scores"])}
    slices = _scored_slices(context, index)
    domain = {name: text for name, text in index.results.items() if name == OTHER_DOMAIN}
    with _planning(step) as scratch:
        with tables.opened(scratch) as database:
            rows = _rows(database, step, index)
            about = _about_shards(rows, index.results[compare.NAME], made, domain)
            sets = shard_sets.assign(step, flow.shards, made, rows, slices, about, scratch)
        shard_sets.write(context, step, sets, workers=worker_counts.inspecting(flow, context.cluster))
    return sets[0].folder


def pictures(context: Context, sample_ids: Sequence[str]) -> pa.Table:
    """Scored edits with their images, in the order of ``sample_ids``, read from the data set again: rows of the ``examples`` contract.

    Raises ``ValueError`` when the data set is not there or is no longer what was scored.
    """
    step = context.run.step(STEP)
    index = step.sound(files=False)
    slices = _scored_slices(context, index)
    with tables.opened(step.path) as database:
        return examples.read(_rows(database, step, index), slices, sample_ids)


def _scored_slices(context: Context, index: Index) -> Sequence[edits.Slice]:
    """The plan of the data set that was scored. Raises ``ValueError`` when it is another one now, naming a row whose image is."""
    flow: FilterConfig = context.need("filter")
    step = context.run.step(STEP)
    slices = _slices(context, flow, step)
    if _fingerprint(slices) != index.inputs["edits"]:
        scored = step.read("scores", ["sample_id", "number"], SCORED)
        numbers = scored["number"].to_numpy()
        for piece in (piece for piece in slices if piece.changed):
            places = np.flatnonzero(np.isin(numbers, [number for number, _ in piece.rows]))
            known = scored["sample_id"].take(places).to_pylist()
            deque(edits.fetch_known(inspection.rows_of(piece, numbers[places]), known), maxlen=0)
        raise ValueError("the edits are not those that were scored; restore them, or run the filter step again with --force")
    return slices


def _slices(context: Context, config: FilterConfig, step: StepFolder) -> Sequence[edits.Slice]:
    """The plan of the edits, as they are now."""
    planned = edits.plan(config.input, seed=context.flow.seed, world=context.flow.world, unit_rows=config.unit_rows)
    return as_they_are(step, planned, inspection.unit_key)


def _fingerprint(slices: Sequence[edits.Slice]) -> str:
    return settings_hash([piece.fingerprint for piece in slices])


def _planning(step: StepFolder) -> tempfile.TemporaryDirectory[str]:
    """A folder for what is sorted, and for what workers read of the shards that they write; it goes with the block."""
    return tempfile.TemporaryDirectory(prefix=storage.TEMPORARY, dir=step.path)


def _rows(database: Tables, step: StepFolder, index: Index) -> ScoredRows:
    return ScoredRows.of(database, step, index.artifacts, index.results.get("flags", ()))


def _about_shards(
    rows: ScoredRows, compared: Mapping[str, Any], made: Mapping[str, Path], domain: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Per selection what the index of its shards says besides."""
    about = {}
    for name, table in made.items():
        rows.tables.view("kept", [table], contracts.SELECTION)
        counted = f"SELECT count(DISTINCT sample_id) FROM {compare.NAME} SEMI JOIN kept USING (sample_id) WHERE counted"
        about[name] = decontamination.about(compared, rows.tables.number(counted)) | domain
    return about


def _shard_files(step: StepFolder, config: FilterConfig, name: str, content: Mapping[str, Any]) -> dict[str, str]:
    """sha256 by file of a set of shards. Of shards in another folder or behind a URL the step keeps a copy of their index."""
    listed = {shards.INDEX: storage.publish_checked(step.path / "shards" / name / shards.INDEX, content)}
    if config.shards.target is None:
        listed |= {entry["name"]: entry["sha256"] for entry in [*content["shards"], content["samples"]]}
    return {f"shards/{name}/{file}": sha256 for file, sha256 in sorted(listed.items())}


def _shards_are_there(step: StepFolder, config: FilterConfig) -> bool:
    """Whether shards in another folder or behind a URL still have the index that the step lists; those in the step's folder were checked
    with it.
    """
    if config.shards.target is None:
        return True
    keys = {entry.name: shards.read_index(str(step.path / "shards" / entry.name))["key"] for entry in config.selections}
    return all(shard_sets.is_whole(folder_of(step, config.shards, name), key) for name, key in keys.items())
