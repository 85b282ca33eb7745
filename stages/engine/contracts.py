"""The data contracts: Arrow schemas of every artifact, with their versions.

| artifact | one row is |
| --- | --- |
| ``sources`` | an image and an instruction |
| ``source_rows`` | one row of a data set that can be a source, without its image |
| ``candidates`` | one edit of a source by one editor |
| ``drawn`` | one candidate that is to be annotated |
| ``delivered`` | one readable edit that was made elsewhere, without its images |
| ``edits``, ``examples`` | a source with an edit of a data set that is filtered |
| ``inspected`` | the measures of such an edit before scoring |
| ``gated`` | one gate that flags or drops an edit |
| ``references`` | one source that edits, or sources to be trained on, are compared with |
| ``source_hashes`` | one source of the run, as hashes |
| ``contamination`` | one reference whose image or instruction matches an edit's, or a training source's |
| ``ratings`` | one score by one person |
| ``pairs`` | one preference |
| ``scores`` | one edit scored by one reward model |
| ``selection`` | one selected sample, with rank and rule |
| ``benchmark_edits`` | one system's edit of a benchmark item |
| ``verdicts`` | one such edit, judged by one judge |
| ``subscores`` | one further score of such an item |
| ``measures`` | a number that no judge gave, of such an item |
| ``samples`` | one image of a benchmark item, for the report |
| ``quarantine`` | one row that could not be processed, with the reason |
| ``revisions`` | one submission of a person for a group, with its number |
| ``exclusions`` | one rating that quality control does not accept, with the reason |
| ``comparisons`` | one pair of edits that a published data set compares, once |
| ``consensus`` | the score of a candidate in a dimension, aggregated over raters |

Images are the Hub's struct ``{bytes, path}`` with the encoded bytes as delivered. ``metadata`` columns are JSON text, read only by the
plug-in that wrote it. No column has a wall-clock time of the machine: times are in the run's manifest, so that equal work gives equal
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

DIMENSIONS = ("instruction_following", "visual_quality")
"""Dimensions of the paper (section 2.1); the schemas allow any others."""

DIMENSION_SCORE = pa.struct([("dimension", pa.string()), ("mean", pa.float64()), ("sigma", pa.float64()), ("likert", pa.float64())])
_DIMENSION_PREFERENCE = pa.struct(
    [("dimension", pa.string()), ("score_a", pa.float64()), ("score_b", pa.float64()), ("label", pa.string())]
)


SCHEMAS: dict[str, pa.Schema] = {}
"""By artifact."""


def _schema(name: str, version: int, *columns: tuple[str, pa.DataType]) -> pa.Schema:
    """The schema of an artifact, also entered in :data:`SCHEMAS`."""
    SCHEMAS[name] = pa.schema(columns, metadata={"contract": f"{name}/{version}"})
    return SCHEMAS[name]


SOURCES = _schema(
    "sources", 2,
    ("source_id", pa.string()),
    ("dataset", pa.string()),
    ("benchmark", pa.string()),  # whose item it is; empty for none
    ("split", pa.string()),  # train or validation
    ("group", pa.string()),  # split group: sources that share an image, or a near duplicate of it, share it
    ("image", IMAGE),
    ("instruction", pa.string()),
    ("language", pa.string()),
    ("task", pa.string()),
    ("licence", pa.string()),  # of the image and the instruction; empty where the data set names none
    ("metadata", pa.string()),
)  # fmt: skip
SOURCE_ROWS = _schema(
    "source_rows", 1,
    ("row", pa.int64()),  # its number in the table
    ("row_id", pa.string()),
    ("dataset", pa.string()),
    ("position", pa.string()),
    ("source_id", pa.string()),
    ("group", pa.string()),  # of equal images
    ("source_phash", pa.uint64()),  # 64 bits, reward/likeness.py
    ("split", pa.string()),  # as the data set declares it, else empty
)  # fmt: skip
CANDIDATES = _schema(
    "candidates", 2,
    ("candidate_id", pa.string()),
    ("source_id", pa.string()),
    ("editor", pa.string()),
    ("editor_revision", pa.string()),
    ("seed", pa.int64()),
    ("settings_hash", pa.string()),
    ("image", IMAGE),
    ("status", pa.string()),  # ok or failed
    ("reason", pa.string()),  # of a failed one: a short code
    ("error", pa.string()),
    ("licence", pa.string()),  # of the editor's weights, or as the data set names it
    ("flags", pa.list_(pa.string())),  # names of the output checks that flag it
    ("record", pa.string()),  # JSON text: how it was made, such as canvas, measures and versions
    ("metadata", pa.string()),
)  # fmt: skip
DRAWN = _schema(
    "drawn", 1,
    ("source_id", pa.string()),
    ("candidate_id", pa.string()),
)  # fmt: skip
DELIVERED = _schema(
    "delivered", 2,
    ("sample_id", pa.string()),
    ("source_id", pa.string()),
    ("group", pa.string()),  # of equal source images
    ("source_phash", pa.uint64()),  # 64 bits, reward/likeness.py
    ("split", pa.string()),  # as the data set declares it, else empty
    ("published_id", pa.string()),  # by which the data set's ratings know the edit; empty where it has none
    ("row_id", pa.string()),
    ("position", pa.string()),
    ("editor", pa.string()),
    ("seed", pa.int64()),  # null where the data set names none
    ("image_bytes", pa.int64()),  # of both images, as encoded
)  # fmt: skip
EDITS = _schema(
    "edits", 2,
    ("sample_id", pa.string()),
    ("dataset", pa.string()),
    ("source", IMAGE),
    ("instruction", pa.string()),
    ("edited", IMAGE),
    ("language", pa.string()),
    ("task", pa.string()),
    ("licence", pa.string()),
    ("position", pa.string()),  # where the row came from, e.g. "records.json[17]"
    ("image_bytes", pa.int64()),  # of both images, as encoded
    ("metadata", pa.string()),
)  # fmt: skip
INSPECTED = _schema(
    "inspected", 1,
    ("sample_id", pa.string()),
    ("row_id", pa.string()),
    ("position", pa.string()),
    ("source_width", pa.int32()),
    ("source_height", pa.int32()),
    ("edited_width", pa.int32()),
    ("edited_height", pa.int32()),
    ("source_sha256", pa.string()),
    ("edited_sha256", pa.string()),
    ("source_phash", pa.uint64()),  # 64 bits, reward/likeness.py
    ("edited_phash", pa.uint64()),
    ("change_phash", pa.uint64()),  # of the absolute difference of the two images
    ("instruction", pa.string()),  # its words: normalised (NFKC), lower case, no punctuation, separated by one space
    # The measures of the gates follow in the files: stages/filter/decide.py completes this schema
)  # fmt: skip
GATED = _schema(
    "gated", 1,
    ("sample_id", pa.string()),
    ("gate", pa.string()),
    ("value", pa.float64()),
    ("threshold", pa.float64()),
    ("action", pa.string()),  # flag: kept; drop: left out of scoring
)  # fmt: skip
REFERENCES = _schema(
    "references", 1,
    ("reference", pa.string()),  # name of the reference, or training, or sources
    ("item", pa.string()),  # id in the reference
    ("source_sha256", pa.string()),
    ("source_phash", pa.uint64()),
    ("instruction", pa.string()),  # its words, as in inspected; empty where there is none
)  # fmt: skip
CONTAMINATION = _schema(
    "contamination", 1,
    ("sample_id", pa.string()),
    ("reference", pa.string()),
    ("item", pa.string()),  # the one that matches best
    ("match", pa.string()),  # exact image, near image or instruction
    ("distance", pa.int32()),  # bits in which the perceptual hashes differ; 0 for an exact image, null for an instruction
    ("same_instruction", pa.bool_()),  # whether an item with that image has that instruction too
    ("others", pa.int64()),  # further items that match in this way
    ("counted", pa.bool_()),  # whether this match counts as contamination
)  # fmt: skip
RATINGS = _schema(
    "ratings", 1,
    ("rating_id", pa.string()),
    ("source_id", pa.string()),
    ("candidate_id", pa.string()),
    ("annotator", pa.string()),
    ("dimension", pa.string()),
    ("score", pa.float64()),
    ("scale_min", pa.float64()),
    ("scale_max", pa.float64()),
    ("round", pa.string()),
    ("submission", pa.string()),
    ("rated_at", pa.string()),  # ISO 8601 with offset, as delivered; empty when unknown
    ("seconds", pa.float64()),
    ("comment", pa.string()),
    ("rubric_version", pa.string()),
)  # fmt: skip
PAIRS = _schema(
    "pairs", 1,
    ("pair_id", pa.string()),
    ("source_id", pa.string()),
    ("split", pa.string()),
    ("candidate_a", pa.string()),
    ("candidate_b", pa.string()),
    ("dimensions", pa.list_(_DIMENSION_PREFERENCE)),
    ("overall_a", pa.float64()),
    ("overall_b", pa.float64()),
    ("gap", pa.float64()),
    ("label", pa.string()),  # a, b or tie
    ("origin", pa.string()),  # plain, tie-disentangled, tie-doubled or tie-soft
    ("raters", pa.int32()),
)  # fmt: skip
SCORES = _schema(
    "scores", 1,
    ("sample_id", pa.string()),
    ("scorer_revision", pa.string()),
    ("dimensions", pa.list_(DIMENSION_SCORE)),
    ("overall_mean", pa.float64()),
    ("overall_sigma", pa.float64()),
    ("change_from_source", pa.float64()),  # mean absolute pixel difference, 0..255
    ("task", pa.string()),
    ("language", pa.string()),
    ("flags", pa.list_(pa.string())),
)  # fmt: skip
SELECTION = _schema(
    "selection", 1,
    ("sample_id", pa.string()),
    ("rank", pa.int64()),  # 0 is the best
    ("stratum", pa.string()),
    ("score", pa.float64()),
    ("rule", pa.string()),
)  # fmt: skip
BENCHMARK_EDITS = _schema(
    "benchmark_edits", 1,
    ("item_id", pa.string()),
    ("language", pa.string()),
    ("arm", pa.string()),
    ("task", pa.string()),
    ("subsets", pa.list_(pa.string())),  # of the benchmark that the item belongs to, beside the full set
    ("edit_id", pa.string()),  # of the edited image's pixels; empty where there is no edit
    ("image", IMAGE),
    ("error", pa.string()),  # why there is no edit
    ("changed_share", pa.float64()),  # of the image's pixels; the next two are measured outside of them, null where nothing is outside
    ("psnr", pa.float64()),
    ("ssim", pa.float64()),
)  # fmt: skip
VERDICTS = _schema(
    "verdicts", 2,
    ("item_id", pa.string()),
    ("language", pa.string()),
    ("arm", pa.string()),
    ("task", pa.string()),
    ("subsets", pa.list_(pa.string())),
    ("edit_id", pa.string()),
    ("judge", pa.string()),
    ("judge_revision", pa.string()),
    ("judge_snapshot", pa.string()),  # the model that its replies name; empty where they name none
    ("attempts", pa.int32()),  # calls of the judge for this edit
    ("prompt_tokens", pa.int64()),
    ("completion_tokens", pa.int64()),
    ("semantic_consistency", pa.float64()),
    ("perceptual_quality", pa.float64()),
    ("overall", pa.float64()),
    ("status", pa.string()),
    ("raw", pa.string()),
)  # fmt: skip
SUBSCORES = _schema(
    "subscores", 2,
    ("item_id", pa.string()),
    ("language", pa.string()),
    ("arm", pa.string()),
    ("judge", pa.string()),
    ("judge_revision", pa.string()),
    ("subscore", pa.string()),
    ("score", pa.float64()),
)  # fmt: skip
MEASURES = _schema(
    "measures", 1,
    ("item_id", pa.string()),
    ("language", pa.string()),
    ("arm", pa.string()),
    ("measure", pa.string()),
    ("value", pa.float64()),  # null where the measure has none, or there is no edit
)  # fmt: skip
SAMPLES = _schema(
    "samples", 1,
    ("item_id", pa.string()),
    ("task", pa.string()),
    ("instruction", pa.string()),
    ("arm", pa.string()),  # source, exact, base, or the name of an arm
    ("image", IMAGE),
)  # fmt: skip
QUARANTINE = _schema(
    "quarantine", 1,
    ("row_id", pa.string()),
    ("position", pa.string()),
    ("reason", pa.string()),  # one short code, counted in the report
    ("message", pa.string()),
)  # fmt: skip
REVISIONS = _schema(
    "revisions", 1,
    ("submission", pa.string()),
    ("group_id", pa.string()),
    ("annotator_id", pa.string()),
    ("revision", pa.int64()),  # grows with the time; of one person and group the highest counts
)  # fmt: skip
EXCLUSIONS = _schema(
    "exclusions", 1,
    ("rating_id", pa.string()),
    ("source_id", pa.string()),
    ("annotator", pa.string()),
    ("dimension", pa.string()),
    ("round", pa.string()),
    ("reason", pa.string()),  # annotator-removed or exam
    ("message", pa.string()),
)  # fmt: skip
COMPARISONS = _schema(
    "comparisons", 1,
    ("source_id", pa.string()),
    ("candidate_a", pa.string()),  # the smaller id of the two
    ("candidate_b", pa.string()),
)  # fmt: skip
CONSENSUS = _schema(
    "consensus", 1,
    ("source_id", pa.string()),
    ("candidate_id", pa.string()),
    ("dimension", pa.string()),
    ("score", pa.float64()),
    ("raters", pa.int32()),
    ("label_source", pa.string()),  # mean, unanimous, majority, adjudicated, mean-opinion (0..100) or mean-rank (1 is best)
)  # fmt: skip

SCHEMAS |= {"examples": EDITS, "unreadable_references": QUARANTINE, "source_hashes": REFERENCES}


@dataclass(frozen=True)
class Quarantined:
    """A row that could not be processed. ``position``: its place in the input; ``reason``: a short code; ``message``: a sentence."""

    row_id: str
    position: str
    reason: str
    message: str


def candidate(**values: Any) -> dict[str, Any]:
    """A row of ``candidates`` with these values; what is not given is empty, and the candidate sound."""
    empty = {"editor_revision": "", "seed": 0, "settings_hash": "", "image": None, "status": "ok", "reason": "", "error": "", "licence": ""}
    return {**empty, "flags": [], "record": "{}", "metadata": "{}", **values}


def scores_by_dimension(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """``{mean, sigma, likert}`` by dimension, of the list ``dimensions`` of a row of ``scores``."""
    return {entry["dimension"]: {name: entry[name] for name in ("mean", "sigma", "likert")} for entry in entries}


def dimension_scores(scores: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Inverse of :func:`scores_by_dimension`."""
    return [{"dimension": dimension, **score} for dimension, score in scores.items()]


def table(artifact: str, rows: list[dict], schema: pa.Schema | None = None) -> pa.Table:
    """Rows as a table of the artifact's contract, or of a schema that completes it; every row has exactly its columns."""
    schema = schema or SCHEMAS[artifact]
    names = set(schema.names)
    for row in rows:
        assert row.keys() == names, f"{artifact} row has columns {sorted(row.keys() ^ names)} too many or too few"
    return pa.Table.from_pylist(rows, schema=schema)
