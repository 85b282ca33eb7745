"""Configuration of ratings: who rates what, the rating page, quality control, benchmarks of experts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.annotate.quality.config import QualityConfig, Round
from stages.engine.config import Config


class SimulatedRaters(Config):
    """Simulated raters of the embedded world: biased and noisy, one per group unless overlapped."""

    overlap: float = Field(0.2, ge=0, le=1, description="Share of groups that more than one rater rates")
    raters: int = Field(2, ge=2, le=6, description="Raters of such a group")


class BenchConfig(Config):
    """A benchmark built from ratings of experts (`pipeline annotate build-bench`), by default as large as the paper's first release."""

    round: Round = Field("benchmark", description="Round of the experts' ratings")
    split: Literal["validation", "train", "all"] = Field("validation", description="Sources that become items")
    pairs: int = Field(186, ge=0, description="Comparisons of 2 edits")
    triples: int = Field(150, ge=0, description="Strict orders of 3 edits")
    quadruples: int = Field(148, ge=0, description="Strict orders of 4 edits")
    tie_share: float = Field(0.25, ge=0, le=1, description="Share of the comparisons of 2 that are ties")


class PlanConfig(Config):
    """Who rates what: drawn at export from hashes of the groups, before anybody has rated."""

    overlap: float = Field(0.2, ge=0, le=1, description="Share of groups that overlap_raters people rate; the others are rated by one")
    overlap_raters: int = Field(2, ge=2, description="People per group of the overlap")
    calibration: int = Field(0, ge=0, description="Groups that everybody rates first")
    gold: str | None = Field(None, description="File of experts' ratings (long or wide): training, exam and hidden gold come from it")
    training_groups: int = Field(15, ge=0, description="Gold groups for training, with feedback")
    exam_groups: int = Field(10, ge=1, description="Gold groups in each of the two exam forms")
    hidden_gold: float = Field(0.03, ge=0, lt=1, description="Share of hidden gold groups in everyone's production work")


class ServeConfig(Config):
    """The rating page (`pipeline annotate serve`)."""

    port: int = Field(8321, ge=0, le=65535, description="Port to listen on; 0: any free one")
    lease_minutes: float = Field(30, gt=0, description="How long a group is kept for the person who opened it")
    requests_per_minute: int = Field(600, ge=1, description="Requests that one link may make, images included")


class AnnotateConfig(Config):
    """Ratings: where they come from and how they are checked."""

    scale_min: int = Field(1, description="Lowest score (paper A.2: 1, very poor)")
    scale_max: int = Field(4, description="Highest score (paper A.2: 4, very good)")
    scale_step: float = Field(1.0, gt=0, description="Step of the scores; 0.1 for a slider from 1 to 5")
    rubric_version: str = Field("v1", description="Rubric that the raters saw")
    simulate: SimulatedRaters | None = Field(None, description="Simulated raters; leave out when people rate")
    plan: PlanConfig = Field(PlanConfig(), description="Overlap, calibration and gold groups")
    serve: ServeConfig = Field(ServeConfig(), description="The rating page")
    quality: QualityConfig = Field(QualityConfig(), description="Quality control (docs/annotation-quality.md)")
    benchmark: BenchConfig = Field(BenchConfig(), description="Benchmark from ratings of experts")
