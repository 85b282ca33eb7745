"""Content of a run for the layouts: pairs, sources and candidates, and an iterator over the images."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from stages.engine import steps, storage
from stages.engine.rundir import RunDir

AT_ONCE = 32
"""Rows with images that are in memory together."""


class Content:
    """The pairs of a run. Raises ``ValueError`` when generate or preferences is not done."""

    def __init__(self, run: RunDir) -> None:
        self.generate = run.step(steps.GENERATE)
        self.preferences = run.step(steps.PREFERENCES)
        self.pairs: list[dict[str, Any]] = self.preferences.read("pairs").to_pylist()
        self.dimensions = [entry["dimension"] for entry in self.pairs[0]["dimensions"]]

    @cached_property
    def split_of(self) -> dict[str, str]:
        """Split of every source that has pairs."""
        return {row["source_id"]: row["split"] for row in self.pairs}

    @cached_property
    def sources(self) -> dict[str, dict[str, Any]]:
        """Rows of the sources that have pairs, without images."""
        columns = ["source_id", "dataset", "instruction", "language", "task"]
        return {row["source_id"]: row for row in self.generate.read("sources", columns).to_pylist() if row["source_id"] in self.split_of}

    @cached_property
    def candidates(self) -> dict[str, dict[str, Any]]:
        """Rows of the candidates with pairs: id, source, editor, and ``scores``, the mean rating of each dimension."""
        scores: dict[str, dict[str, float]] = {}
        for row in self.pairs:
            for side in ("a", "b"):
                scores[row[f"candidate_{side}"]] = {entry["dimension"]: entry[f"score_{side}"] for entry in row["dimensions"]}
        rows = self.generate.read("candidates", ["candidate_id", "source_id", "editor"]).to_pylist()
        return {row["candidate_id"]: row | {"scores": scores[row["candidate_id"]]} for row in rows if row["candidate_id"] in scores}

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """``statistics.json`` of the preferences."""
        return storage.read_json(self.preferences.path / "statistics.json")

    def images(self, artifact: str, key: str, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Id and encoded image of the wanted rows of ``sources`` or ``candidates``, in the order of the artifact."""
        for row in self.generate.rows(artifact, [key, "image"], AT_ONCE):
            if row[key] in wanted:
                yield row[key], row["image"]["bytes"]
