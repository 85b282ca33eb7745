"""Tuples of an EditReward-Bench: the 2, 3 or 4 edits of a source that are compared (paper 2.3 and A.3).

In: groups with the experts' scores and their consensus. Out: tuples. Edit A is better than B when its overall consensus (the sum of the
dimensions) is higher and most experts order the two so. Equal consensus is a tie. Any other pair is unclear and in no tuple. Tuples of 3
and 4 are strict orders. Each group gives at most one tuple, its hardest: the one with the smallest mean difference of the experts' mean
overall scores. Larger tuples are chosen first because fewer groups have them; then the edit type with the fewest tuples, then the hardest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stages.engine.ids import uniform

DIFFERENCE = 1e-9


@dataclass(frozen=True)
class ExpertGroup:
    """A source and its labelled candidates. experts: [expert, candidate, dimension]; consensus: [candidate, dimension]."""

    source_id: str
    task: str
    candidates: tuple[str, ...]
    experts: np.ndarray
    consensus: np.ndarray

    def relation(self, a: int, b: int) -> int | None:
        """1 if a is better, -1 if b is, 0 for a tie, None if most experts do not order the pair as the consensus does."""
        gap = self.consensus[a].sum() - self.consensus[b].sum()
        if abs(gap) < DIFFERENCE:
            return 0
        gaps = self.experts[:, a].sum(axis=1) - self.experts[:, b].sum(axis=1)
        alike = int((np.sign(np.round(gaps, 9)) == np.sign(gap)).sum())
        return int(np.sign(gap)) if 2 * alike > len(gaps) else None


@dataclass(frozen=True)
class Tuple:
    """Compared candidates in the order A, B, C, D, which a seeded hash gives.

    indices: indices in the group. hardness: mean difference of the overall scores (smaller is harder). agreement: mean over pairs of the
    share of experts who order the pair as its label does.
    """

    group: ExpertGroup
    indices: tuple[int, ...]
    hardness: float
    agreement: float
    tie: bool

    @property
    def size(self) -> int:
        """2, 3 or 4."""
        return len(self.indices)


def choose(groups: Sequence[ExpertGroup], wanted: Mapping[int, int], *, tie_share: float, seed: int) -> list[Tuple]:
    """At most ``wanted`` tuples of each size; at most a share ``tie_share`` of the pairs are ties."""
    free = {group.source_id: group for group in groups}
    chosen: list[Tuple] = []
    for size in sorted(wanted, reverse=True):
        ties = round(tie_share * wanted[size]) if size == 2 else 0
        per_task: Counter[str] = Counter()
        for count, tie in ((ties, True), (wanted[size] - ties, False)):
            best = [found for group in free.values() if (found := hardest(group, size, tie=tie, seed=seed))]
            taken = balanced(best, count, per_task, seed=seed)
            for found in taken:
                del free[found.group.source_id]
            chosen += taken
    return sorted(chosen, key=lambda found: (found.size, found.group.source_id))


def hardest(group: ExpertGroup, size: int, *, tie: bool, seed: int) -> Tuple | None:
    """The hardest tuple of a group whose pairs are all strict, or all ties; None if there is none."""
    relations = {pair: group.relation(*pair) for pair in combinations(range(len(group.candidates)), 2)}
    fit = {pair for pair, relation in relations.items() if relation is not None and (relation == 0) == tie}
    overall = group.experts.sum(axis=2).mean(axis=0)  # the experts' mean of the summed dimensions: [candidate]
    best: tuple[float, float, tuple[int, ...]] | None = None
    for indices in combinations(range(len(group.candidates)), size):
        pairs = list(combinations(indices, 2))
        if not fit.issuperset(pairs):
            continue
        apart = round(float(np.mean([abs(overall[a] - overall[b]) for a, b in pairs])), 9)
        key = (apart, uniform("tuple", seed, *(group.candidates[place] for place in indices)), indices)
        best = key if best is None else min(best, key)
    if best is None:
        return None
    shown = tuple(sorted(best[2], key=lambda place: (uniform("order of a tuple", seed, group.candidates[place]), place)))
    return Tuple(group, shown, best[0], _agreement(group, best[2]), tie)


def balanced(tuples: Sequence[Tuple], count: int, per_task: Counter[str], *, seed: int) -> list[Tuple]:
    """Up to ``count`` tuples: each time the hardest of the task with the fewest so far. ``per_task`` counts them and is updated."""
    waiting: defaultdict[str, list[Tuple]] = defaultdict(list)
    order = sorted(tuples, key=lambda t: (t.hardness, uniform("tuple", seed, t.group.source_id), t.group.source_id), reverse=True)
    for found in order:
        waiting[found.group.task].append(found)
    taken: list[Tuple] = []
    while len(taken) < count and any(waiting.values()):
        task = min((task for task, left in waiting.items() if left), key=lambda task: (per_task[task], task))
        taken.append(waiting[task].pop())
        per_task[task] += 1
    return taken


def _agreement(group: ExpertGroup, indices: Sequence[int]) -> float:
    overall = group.experts.sum(axis=2)  # [expert, candidate]
    alike = [
        np.sign(np.round(overall[:, a] - overall[:, b], 9)) == np.sign(np.round(group.consensus[a].sum() - group.consensus[b].sum(), 9))
        for a, b in combinations(indices, 2)
    ]
    return round(float(np.mean(alike)), 6)
