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

RUN_AGAIN = "delete it and run the step again: finished units are kept"
REMEDIES = {
    ANNOTATE: "restore this file from a backup; or delete it, not the folder, which has what people rated, and ingest all files of ratings "
    "again in one command"
}
"""What to do about a damaged index, where it is not :data:`RUN_AGAIN`."""
