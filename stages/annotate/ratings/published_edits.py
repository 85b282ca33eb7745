"""Ratings of published data sets, given to the candidates that a run made of the same data set.

In: deliveries with imported items (:mod:`stages.annotate.ratings.imported_items`), and a finished step generate whose candidates came from
a data set that names its edits (:mod:`stages.datasets.published_ids`). Out: the same ratings as ratings of the run's candidates. Two edits
with equal images are one candidate, so ratings of the second are duplicates of those of the first, or a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stages.annotate.ratings.delivery import Delivery, InvalidRow
from stages.engine.rundir import StepFolder

Candidate = tuple[str, str]
"""Ids of a candidate of the run: source, candidate."""


def given_to_candidates(deliveries: Sequence[Delivery], generate: StepFolder) -> list[Delivery]:
    """The deliveries with imported items as ratings of the run's candidates; others unchanged.

    Raises ``ValueError`` when generate is not done, and for a file that rates none of its candidates.
    """
    if all(delivery.dataset is None for delivery in deliveries):
        return [*deliveries]
    there = set(generate.read("candidates", ["candidate_id"])["candidate_id"].to_pylist())
    rows = generate.read("delivered", ["published_id", "source_id", "sample_id"])
    known = {name: (source, edit) for name, source, edit in zip(*(c.to_pylist() for c in rows.columns), strict=True) if edit in there}
    return [_given(delivery, known) if delivery.dataset else delivery for delivery in deliveries]


def _given(delivery: Delivery, known: Mapping[str, Candidate]) -> Delivery:
    if not any(row.candidate_id in known for row in delivery.rows):
        raise ValueError(
            f"{delivery.file} rates none of the candidates of this run; name the data set that it belongs to in generate.candidates, or "
            "ingest it into a run without candidates"
        )
    sources: defaultdict[int, set[str]] = defaultdict(set)
    for row in delivery.rows:
        if row.candidate_id in known:
            sources[row.number].add(known[row.candidate_id][0])
    rows, invalid = [], list(delivery.invalid)
    for row in delivery.rows:
        if row.candidate_id not in known:
            message = "the edit is not a candidate of this run; the quarantine of generate says why, where the data set has it"
            invalid.append(InvalidRow(row.number, "edit-set-aside", message))
        elif len(sources[row.number]) > 1:
            message = "the two edits of the pair have different source images or instructions, so they cannot be compared"
            invalid.append(InvalidRow(row.number, "pair-of-two-sources", message))
        else:
            source, candidate = known[row.candidate_id]
            rows.append(row._replace(group_id=source, candidate_id=candidate))
    pairs = [(known[a], known[b]) for a, b in delivery.compared if a in known and b in known]
    compared = {(min(a, b), max(a, b)): None for (of_a, a), (of_b, b) in pairs if of_a == of_b and a != b}
    return replace(delivery, rows=rows, invalid=invalid, items=(), dataset=None, compared=[*compared])
