"""Names of the steps: folder in the run directory and word on the command line."""

from __future__ import annotations

GENERATE = "generate"
PREFERENCES = "preferences"
TRAIN_REWARD = "train-reward"
FILTER = "filter"
FINETUNE = "finetune"
EVALUATE_REWARD = "evaluate-reward"
EVALUATE_EDITOR = "evaluate-editor"
ANNOTATE = "annotate"
ANNOTATION_QC = "annotation-qc"
BUILD_BENCH = "build-bench"
NEXT_ANNOTATIONS = "next-annotations"

COMMANDS = {ANNOTATE: "annotate ingest --file FILE", ANNOTATION_QC: "annotate qc"}
"""Command of each step that ``pipeline run`` does not run."""
