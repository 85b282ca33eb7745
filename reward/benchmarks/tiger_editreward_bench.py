"""TIGER-Lab/EditReward-Bench: groups of 2, 3 or 4 edits of one source, all pairs compared by three experts (EditReward, section 2.3).

Not to be confused with EditScore/EditReward-Bench (``editscore_editreward_bench``), which many later tables use.

Hub: data set TIGER-Lab/EditReward-Bench, gated (accept its terms, then download), Apache-2.0, 2.9 GB, split train, Parquet in the folders
2pair, 3pair, 4pair. One row is one comparison: id, dataset (2pair, 3pair, 4pair), instruction, source_image, candidate_1, candidate_2,
ranking ("A>B", "C>A", "A=B"), comparison_type ("AvsB", "BvsD"); scores per dimension and the models' names are there too and are not
used. The paper's figures rest on the first release of 1,524 rows in 186, 150 and 148 groups. In December 2025 it was de-duplicated,
because some comparisons were there twice with contradicting labels; record which revision you have.

Published convention. A group is right when all its comparisons are; "overall" is the share of groups of any size (micro). Groups of 2 may
be ties: a tie is right where |m| is at most the oracle threshold of all groups of 2, but a decided pair is right by sign even there, so
near that threshold both answers are right. "Pooled pairwise" is the accuracy over all comparisons with one oracle threshold. The released
code breaks equal scores by position; here a decided pair with equal scores is wrong.

Sound. Groups of which no comparison is contradicted by another row; one answer per pair, by a cross-fitted threshold in groups of 2.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reward.benchmarks import ties
from reward.benchmarks.items import BenchmarkEdit, Comparison, Scores, margins
from reward.benchmarks.result import BenchmarkResult, Measured, assess, size_note
from reward.benchmarks.tables import Row, parquet_files, parquet_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap
from reward.evaluation.estimate import Estimate

NAME = "tiger-editreward-bench"
HUB_ID = "TIGER-Lab/EditReward-Bench"
PUBLISHED_COMPARISONS = 1524
SIZES = {"2pair": 2, "3pair": 3, "4pair": 4}

_TYPE = re.compile(r"([A-D])vs([A-D])")
_RANKING = re.compile(r"([A-D])([<>=])([A-D])(=Good|=Bad)?")


def load(path: str | Path) -> list[Comparison]:
    """Comparisons of a local copy, in the order of its files."""
    rows = parquet_rows(
        parquet_files(path, "**/*.parquet", HUB_ID),
        columns=("id", "dataset", "instruction", "ranking", "comparison_type"),
        images=("source_image", "candidate_1", "candidate_2"),
    )
    items = []
    seen: Counter[str] = Counter()
    for row in rows:
        kind, instruction, name = row.text("dataset"), row.text("instruction"), row.text("id")
        if kind not in SIZES:
            raise row.fault("dataset", f"{kind!r} is none of {', '.join(SIZES)}")
        item_id = f"{kind}/{name}"
        seen[item_id] += 1
        first, second = (BenchmarkEdit(row["source_image"], instruction, row[column]) for column in ("candidate_1", "candidate_2"))
        items.append(
            Comparison(
                item_id=item_id if seen[item_id] == 1 else f"{item_id} ({seen[item_id]})",
                first=first,
                second=second,
                label=_label(row),
                source=row["source_image"].content,
                group=f"{kind}/{name.split('_')[0]}",
                kind=kind,
            )
        )
    return items


def contradicted(items: Sequence[Comparison]) -> tuple[set[str], dict[str, int]]:
    """Groups with a comparison that another row labels differently, and counts of rows that repeat an earlier comparison."""
    alike: dict[tuple, list[Comparison]] = defaultdict(list)
    for item in items:
        alike[(item.source, item.first.instruction, frozenset((item.first.edit_id, item.second.edit_id)))].append(item)
    groups: set[str] = set()
    repeated = contradicting = 0
    for rows in alike.values():
        labels = {item.label if item.first.edit_id <= item.second.edit_id else -item.label for item in rows}
        repeated += len(rows) - 1
        if len(labels) > 1:
            contradicting += 1
            groups |= {item.group for item in rows}
    return groups, {"rows that repeat a comparison": repeated, "comparisons with contradicting labels": contradicting}


def all_right(correct: np.ndarray, group: Sequence[str]) -> dict[str, bool]:
    """From [comparison] to groups in the order of first occurrence: whether every comparison of the group is right."""
    found: dict[str, bool] = {}
    for name, right in zip(group, correct.tolist(), strict=True):
        found[name] = found.get(name, True) and bool(right)
    return found


def chance(candidates: int) -> dict[str, float]:
    """What guessing reaches on a group with a strict order. A scorer is transitive: it draws one of K! orders. A judge of pairs is not."""
    return {"scorer": 1 / math.factorial(candidates), "judge of pairs": 0.5 ** math.comb(candidates, 2)}


def measure(items: Sequence[Comparison], scores: Scores, bootstrap: Bootstrap) -> Measured:
    """Strict accuracy of groups by size, overall, and pooled over comparisons."""
    margin, label = margins(items, scores), np.array([item.label for item in items])
    source, group = [item.source for item in items], [item.group for item in items]
    pairs = np.array([item.kind == "2pair" for item in items])
    # Groups of 3 and 4 have no ties, so the sign decides. In groups of 2 the published rule is lenient (a tie is right near 0, a decision
    # by its sign) and the sound one gives a single answer per pair.
    by_sign = ties.three_way(margin, label, ties.NEVER)
    lenient, single = by_sign.copy(), by_sign.copy()
    details = {}
    if pairs.any():
        threshold = ties.oracle_threshold(margin[pairs], label[pairs])
        lenient[pairs] |= (label[pairs] == 0) & (np.abs(margin[pairs]) <= threshold)
        single[pairs] = ties.cross_fitted(margin[pairs], label[pairs], np.array(source)[pairs], seed=bootstrap.seed)
        details["oracle threshold of the groups of 2"] = threshold
    pooled = ties.oracle_threshold(margin, label)
    source_of = dict(zip(group, source, strict=True))
    faulty, _ = contradicted(items)
    kept = {name: right for name, right in all_right(single, group).items() if name not in faulty}
    return Measured(
        published=_by_size(all_right(lenient, group), source_of, bootstrap)
        | {"pooled pairwise, oracle threshold": bootstrap.mean(ties.three_way(margin, label, pooled), source)},
        sound=_by_size(kept, source_of, bootstrap)
        | {"pooled pairwise without ties, equal scores half": bootstrap.mean(ties.decisive(margin, label, "half"), source)},
        details=details | {"oracle threshold of all comparisons": pooled},
        correct=kept,
        source_of=source_of,
    )


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    faulty, repeats = contradicted(items)
    comparisons = Counter(item.group for item in items)
    sizes = {item.group: SIZES[item.kind] for item in items}
    counts = {
        "groups": len(sizes),
        "groups without all their comparisons": sum(comparisons[name] < size * (size - 1) // 2 for name, size in sizes.items()),
        "ties in groups of 3 or 4": sum(item.label == 0 and item.kind != "2pair" for item in items),
        "groups left out of the sound figures": len(faulty),
    }
    guessing = {f"K={k}, {who}": value for k in sorted(set(sizes.values()) - {2}) for who, value in chance(k).items()}
    notes = size_note(len(items), PUBLISHED_COMPARISONS, "comparisons")
    return assess(NAME, items, scores, measure, bootstrap, chance=guessing, counts=counts | repeats, notes=notes)


def _by_size(right: dict[str, bool], source_of: dict[str, str], bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Strict accuracy: overall first, then by size."""

    def share(names: list[str]) -> Estimate:
        return bootstrap.mean(np.array([right[name] for name in names], dtype=np.float64), [source_of[name] for name in names])

    by_kind = {kind: [name for name in right if name.startswith(f"{kind}/")] for kind in SIZES}
    return {"groups, overall": share(list(right))} | {f"groups, K={SIZES[kind]}": share(names) for kind, names in by_kind.items() if names}


def _label(row: Row) -> int:
    kind, ranking = _TYPE.fullmatch(row.text("comparison_type")), _RANKING.fullmatch(row.text("ranking").replace(" ", ""))
    if kind is None:
        raise row.fault("comparison_type", f"{row['comparison_type']!r} does not look like AvsB")
    if ranking is None or {ranking[1], ranking[3]} != {kind[1], kind[2]}:
        raise row.fault("ranking", f"{row['ranking']!r} does not order {kind[1]} and {kind[2]} as in {kind[1]}>{kind[2]}")
    if ranking[2] == "=":
        return 0
    return 1 if (ranking[1] == kind[1]) == (ranking[2] == ">") else -1
