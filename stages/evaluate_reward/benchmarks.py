"""Published benchmarks of the reward model, a part of the step evaluate-reward.

In: local copies of benchmarks and the model. Out, in the step's folder: ``benchmarks.json`` with the figures of each benchmark (published
convention, sound, trivial baselines), which of its items occur among the run's sources, and a comparison with another model;
``benchmarks/<name>.jsonl`` with one line per item; and the scores of every distinct edit, in ``benchmarks/`` with an index of their own. A
unit is a slice of sources with all their edits. An edit that several benchmarks have is scored once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.benchmarks.items import BenchmarkEdit, Comparison, EditScore, Item, distinct, samples
from reward.benchmarks.names import benchmark
from reward.evaluation.bootstrap import Bootstrap
from reward.evaluation.estimate import number
from stages.context import Context
from stages.engine import contracts, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, Part, StepFolder
from stages.engine.units import Done, Unit
from stages.evaluate_reward.config import BenchmarkConfig, EvaluateRewardConfig
from stages.evaluate_reward.leaks import leaks, training_sources
from stages.scoring.rows import Shown, score_units, scorer_revision

if TYPE_CHECKING:
    from reward.benchmarks.result import BenchmarkResult

FOLDER = "benchmarks"
RESULT = "benchmarks.json"


def inputs(config: EvaluateRewardConfig) -> dict[str, str]:
    """Fingerprints of what benchmarks read: names and sizes of the files, and the model compared with."""
    found = {f"benchmark {entry.name}": _listing(entry) for entry in config.benchmarks}
    return found | ({"compare_with": scorer_revision(config.compare_with)} if config.compare_with else {})


def run(context: Context, step: StepFolder, model: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Score what is missing, print and publish the figures.

    Returns entries of the step's index: files by sha256, and the headline figures; both empty without benchmarks.
    """
    config = context.flow.evaluate_reward
    if not config.benchmarks:
        return {}, {}
    models = {scorer_revision(path): path for path in [model, *([Path(config.compare_with).absolute()] if config.compare_with else [])]}
    if config.compare_with and len(models) == 1:
        raise ValueError(f"evaluate_reward.compare_with: {config.compare_with} is the model that is evaluated; name another one")
    items: dict[str, Sequence[Item]] = {}
    for entry in config.benchmarks:
        with _naming(entry):
            items[entry.name] = benchmark(entry.name).load(storage.absolute(entry.path))
    folder = StepFolder(step.path / FOLDER, f"{step.name} {FOLDER}")
    edits = distinct(item for there in items.values() for item in there)
    done = {revision: _score(context, folder, path, revision, edits) for revision, path in models.items()}
    index = _index(context, folder, done)
    scores = [_edit_scores(folder, found.artifacts()["scores"]) for found in done.values()]
    training = training_sources(context.run)
    figures, headlines, files = {}, {}, {}
    for entry in config.benchmarks:
        with _naming(entry):
            results = [_evaluate(context, entry, items[entry.name], given) for given in scores]
            found = leaks(items[entry.name], training, lambda kept, entry=entry: _evaluate(context, entry, kept, scores[0]))
        figures[entry.name] = {"revision": entry.revision, "result": results[0].to_json(), "contamination": found}
        if len(results) > 1:
            figures[entry.name]["compare"] = _compare(context, results)
        headlines[entry.name] = _headline(results[0])
        name = f"{FOLDER}/{entry.name}.jsonl"
        files[name] = storage.publish_bytes(step.path / name, _lines(items[entry.name], scores[0], results[0]))
        print(f"\nrevision {entry.revision} of {results[0].table()}\n{_remarks(figures[entry.name])}", flush=True)
    revisions = list(models)
    content = {"benchmarks": figures, "scorer_revision": revisions[0], "compared_with": revisions[1:], "quarantined": index.quarantined}
    files[RESULT] = storage.publish_json(step.path / RESULT, content)
    files |= {f"{FOLDER}/{part.path}": part.sha256 for parts in index.artifacts.values() for part in parts}
    files[f"{FOLDER}/index.json"] = storage.sha256_of(folder.path / "index.json")
    return files, {"benchmarks": headlines}


def _score(context: Context, folder: StepFolder, model: Path, revision: str, edits: Sequence[BenchmarkEdit]) -> Done:
    """Scores of all edits by one model, in units of sources."""
    size = context.flow.evaluate_reward.unit_sources
    by_source: dict[str, list[BenchmarkEdit]] = {}
    for edit in edits:
        by_source.setdefault(edit.source.content, []).append(edit)
    groups = list(by_source.values())
    slices = [list(chain(*groups[first : first + size])) for first in range(0, len(groups), size)]
    units = [Unit(settings_hash(FOLDER, [edit.edit_id for edit in part], revision), part, len(part)) for part in slices]
    return score_units(context, folder, units, model, revision, _samples)


def _samples(edits: list[BenchmarkEdit]) -> Shown:
    return [(edit.edit_id, sample, "") for edit, sample in zip(edits, samples(edits), strict=True)]


def _index(context: Context, folder: StepFolder, done: Mapping[str, Done]) -> Index:
    """The index of the scores, of one model or of two."""
    artifacts: dict[str, list[Part]] = {}
    counts, quarantined = Counter[str](), Counter[str]()
    for found in done.values():
        for name, parts in found.artifacts().items():
            artifacts.setdefault(name, []).extend(parts)
        counts.update(found.counts())
        quarantined.update(found.quarantined())
    key = settings_hash(FOLDER, [record.key for found in done.values() for record in found.records])
    return folder.publish(Index(folder.name, key, {}, {}), artifacts=artifacts, counts=counts, quarantined=quarantined)


def _edit_scores(folder: StepFolder, parts: Sequence[Part]) -> dict[str, EditScore]:
    scores = {}
    for row in folder.read_table("scores", parts).to_pylist():
        means = {name: score["mean"] for name, score in contracts.scores_by_dimension(row["dimensions"]).items()}
        scores[row["sample_id"]] = EditScore(row["overall_mean"], means, row["change_from_source"])
    return scores


def _evaluate(context: Context, entry: BenchmarkConfig, items: Sequence[Item], scores: Mapping[str, EditScore]) -> BenchmarkResult:
    return benchmark(entry.name).evaluate(items, scores, bootstrap=_bootstrap(context))


def _compare(context: Context, results: Sequence[BenchmarkResult]) -> dict[str, Any]:
    """McNemar's test between the model and the other, and the other's figures."""
    from reward.benchmarks.mcnemar import compare

    first, second = results
    found = compare(first.model.correct, second.model.correct, first.model.source_of, _bootstrap(context))
    return asdict(found) | {"difference": found.difference.to_json(), "other": second.to_json()}


def _bootstrap(context: Context) -> Bootstrap:
    return Bootstrap(context.flow.evaluate_reward.bootstrap, context.flow.seed)


def _headline(result: BenchmarkResult) -> dict[str, Any]:
    """The first figure of each convention, under its name."""

    rows = {convention: next(iter(getattr(result.model, convention).items()), None) for convention in ("published", "sound")}
    return {convention: {"figure": row[0], "value": number(row[1].value)} for convention, row in rows.items() if row is not None}


def _lines(items: Sequence[Item], scores: Mapping[str, EditScore], result: BenchmarkResult) -> bytes:
    """One JSON line per item: the label or rating of people, the scores of the model, and whether they agree by the sound rule.

    Right is null where the rule does not judge this item by itself: a comparison of a strict group, or one left out.
    """
    correct = result.model.correct
    lines = []
    for item in items:
        given = [scores.get(edit.edit_id) for edit in item.edits]
        line: dict[str, Any] = {"item_id": item.item_id, "source": item.source, "edits": [edit.edit_id for edit in item.edits]}
        line |= {"scores": [None if found is None else {"overall": found.overall, **found.dimensions} for found in given]}
        if isinstance(item, Comparison):
            line |= {"label": item.label, "group": item.group, "kind": item.kind, "dimension": item.dimension}
            line |= {"right": correct.get(item.item_id), "group_right": correct.get(item.group)}
        else:
            line |= {"rating": item.score, "editor": item.editor}
        lines.append(json.dumps(line, sort_keys=True, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def _remarks(figures: Mapping[str, Any]) -> str:
    """Contamination and comparison in a line each."""
    found, other = figures["contamination"], figures.get("compare")
    lines = [f"- items that match the run's {found['training_sources']:,} sources: {found['summary']}"]
    if other is not None:
        by_value = other["difference"]
        lines.append(
            f"- against the other model: only this one right {other['only_first']:,}, only the other {other['only_second']:,}, "
            f"McNemar's exact p = {other['p_value']:.4f}; difference {by_value['value']} [{by_value['low']}, {by_value['high']}]"
        )
    return "\n".join(lines)


def _listing(entry: BenchmarkConfig) -> str:
    """Hash of the names and sizes of a copy's files. Raises ``ValueError`` where there is no such folder."""
    folder = Path(entry.path)
    if not folder.is_dir():
        raise ValueError(f"evaluate_reward.benchmarks, {entry.name}: there is no folder {entry.path}; download the benchmark first")
    return settings_hash(sorted((path.relative_to(folder).as_posix(), path.stat().st_size) for path in folder.rglob("*") if path.is_file()))


@contextmanager
def _naming(entry: BenchmarkConfig) -> Generator[None]:
    """Errors name the benchmark."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"evaluate_reward.benchmarks, {entry.name}: {error}") from None
