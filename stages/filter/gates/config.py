"""Configuration of the gates before scoring: per gate what to do with an edit that it catches, and from which value on.

Defaults come from benchmarks/gates.py; docs/gates.md says what each gate measures. Apart from stages/config.py, which composes it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stages.engine.config import Config

Action = Literal["off", "flag", "drop"]


class Gate(Config):
    """What all gates have."""

    action: Action = Field("flag", description="off: not looked at; flag: counted, shown and kept; drop: counted, shown and not scored")


class SizeGate(Gate):
    """A tiny or huge image."""

    shortest_side: int = Field(128, ge=1, description="Pixels that every side of both images has at least")
    longest_side: int = Field(8192, ge=1, description="Pixels that every side of both images has at most")


class AspectGate(Gate):
    """The edit has another shape than its source."""

    ratio: float = Field(1.1, ge=1, description="Caught above this ratio of the two aspect ratios")


class UnchangedGate(Gate):
    """The edit is its source, perhaps encoded again."""

    change: float = Field(15.0, ge=0, le=255, description="Caught when the cells that changed most changed by less (0..255)")


class DriftGate(Gate):
    """The colours changed outside the edit."""

    change: float = Field(5.0, ge=0, le=255, description="Caught when the half that changed least changed by more in the median (0..255)")


class RedrawnGate(Gate):
    """All of the picture was drawn anew."""

    match: float = Field(0.75, ge=-1, le=1, description="Caught below this correlation of contours where the picture changed least")


class SwappedGate(Gate):
    """Source and edit were exchanged."""

    evidence: float = Field(0.5, ge=-1, le=1, description="Caught above this evidence, which is between -1 and 1")


class UpscaledGate(Gate):
    """An enlarged thumbnail."""

    detail: float = Field(-1.85, description="Caught below this log10 of fine over coarse power")


class NearDuplicateGate(Gate):
    """Almost the same edit with the same words, earlier in the data set."""

    bits: int = Field(4, ge=0, le=64, description="Bits by which each of three perceptual hashes may differ")


class NearEmbeddingGate(Gate):
    """Almost the same edit by vectors of your own."""

    action: Action = Field("off", description="As for the other gates; needs embeddings")
    embeddings: str | None = Field(None, description="Parquet file or URL with the columns sample_id and embedding")
    similarity: float = Field(0.95, ge=-1, le=1, description="Caught above this cosine similarity to an earlier edit")

    @model_validator(mode="after")
    def _has_embeddings(self) -> NearEmbeddingGate:
        if self.action != "off" and self.embeddings is None:
            raise ValueError("near_embedding needs the file of vectors: set embeddings, or action: off")
        return self


class SourceReuseGate(Gate):
    """One source with many edits."""

    edits: int = Field(10, ge=1, description="Edits of one source that may stay, the first ones of the data set")


class LanguageGate(Gate):
    """The instruction is not in an expected language, as far as its script tells."""

    languages: tuple[Literal["en", "cn"], ...] = Field(("en",), min_length=1, description="en: Latin letters; cn: Chinese characters")
    foreign_share: float = Field(0.2, ge=0, le=1, description="Caught above this share of letters in other scripts")


class NothingAskedGate(Gate):
    """The instruction asks for nothing."""

    words: int = Field(1, ge=0, description="Caught with fewer words that ask for something")


class GatesConfig(Config):
    """All gates, in the order in which a dropped edit is attributed."""

    nothing_asked: NothingAskedGate = Field(NothingAskedGate(), description="Instructions that ask for nothing")
    language: LanguageGate = Field(LanguageGate(), description="Instructions in other languages")
    size: SizeGate = Field(SizeGate(), description="Tiny and huge images")
    aspect: AspectGate = Field(AspectGate(), description="Edits in another shape")
    unchanged: UnchangedGate = Field(UnchangedGate(), description="Copies of the source")
    upscaled: UpscaledGate = Field(UpscaledGate(), description="Enlarged thumbnails")
    swapped: SwappedGate = Field(SwappedGate(), description="Source and edit exchanged")
    drift: DriftGate = Field(DriftGate(), description="Colours that changed outside the edit")
    redrawn: RedrawnGate = Field(RedrawnGate(), description="Pictures drawn anew as a whole")
    near_duplicate: NearDuplicateGate = Field(NearDuplicateGate(), description="Almost the same edit again, by perceptual hashes")
    near_embedding: NearEmbeddingGate = Field(NearEmbeddingGate(), description="Almost the same edit again, by your vectors")
    source_reuse: SourceReuseGate = Field(SourceReuseGate(), description="Sources with many edits")
