"""Configuration of ratings: assignment to raters, the rating page, quality control, expert benchmarks.

docs/annotation-quality.md gives the reasons for the defaults of quality control.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from reward.config import DIMENSIONS
from stages.engine.config import Config

Statistic = Literal[
    "alpha_ordinal",
    "alpha_interval",
    "quadratic_weighted_kappa",
    "ac2_ordinal",
    "ac2_quadratic",
    "icc_1_1",
    "icc_2_1",
    "icc_3_1",
    "icc_1_k",
    "icc_2_k",
    "icc_3_k",
    "exact",
    "within_one_level",
    "direction",
]
Round = Literal["pilot", "exam", "calibration", "production", "reannotation", "adjudication", "benchmark"]


class Target(Config):
    """The agreement that the ratings of a round must reach. A round without ratings is not checked."""

    round: Round = Field(description="Round that is checked")
    dimension: str = Field(description="Dimension that is checked")
    statistic: Statistic = Field("alpha_ordinal", description="Statistic that is checked")
    at_least: float = Field(le=1, description="The value to reach")
    bound: Literal["low", "value"] = Field("low", description="low: the lower end of the 95 % interval must reach it; value: the estimate")


def _targets() -> tuple[Target, ...]:
    wanted = {"pilot": (0.60, 0.50), "production": (0.70, 0.60), "benchmark": (0.75, 0.67)}
    return tuple(
        Target.model_validate({"round": r, "dimension": name, "at_least": value, "bound": "value" if r == "pilot" else "low"})
        for r, values in wanted.items()
        for name, value in zip(("instruction_following", "visual_quality"), values, strict=True)
    )


class ExamRules(Config):
    """Thresholds for an annotator's exam (ratings of round exam on gold), in every dimension."""

    groups: int = Field(10, ge=1, description="Gold groups that an exam needs; an exam with fewer groups is not decided")
    kappa: float = Field(0.65, le=1, description="Least quadratic weighted kappa with gold")
    exact: float = Field(0.50, ge=0, le=1, description="Least share of scores that an expert gave too")
    within_one: float = Field(0.93, ge=0, le=1, description="Least share of scores at most one level off")
    severity: float = Field(0.30, gt=0, description="Largest mean difference from gold")


class AttentionRules(Config):
    """Limits beyond which an annotator needs the lead's attention."""

    kappa: float = Field(0.55, le=1, description="Quadratic weighted kappa with the others below this")
    severity: float = Field(0.25, gt=0, description="Mean difference from the others beyond this, either way")
    drift: float = Field(0.25, gt=0, description="Change of that difference from the first to the newest window beyond this, either way")
    pace: float = Field(0.33, ge=0, lt=1, description="Median seconds per group below this share of the annotators' median")


class RemovalRules(Config):
    """Limits beyond which the ratings of an annotator are not accepted."""

    kappa: float = Field(0.40, le=1, description="Upper end of the 95 % interval of kappa with the others below this")
    gold_within_one: float = Field(0.80, ge=0, le=1, description="Share of scores on gold at most one level off below this")
    failed_exam: bool = Field(True, description="Remove annotators who failed the exam")
    outliers: Literal["off", "bt500", "two-sd"] = Field(
        "off", description="bt500: ITU-R BT.500 observer screening; two-sd: EditHF's, scores beyond 2 SD of their item (6 raters per item)"
    )
    outlier_share: float = Field(0.05, gt=0, lt=1, description="Share of outliers above which an annotator is removed")


class ReannotationRules(Config):
    """Which groups enter the re-annotation queue or the adjudication queue."""

    difference: float = Field(0.9, gt=0, description="Mean difference between the raters of a group above this")
    raters: int = Field(
        3, ge=2, description="With this many raters a group gets no further one; its cells two levels apart are adjudicated"
    )
    rankings: int = Field(3, ge=2, description="People who rank a group; where their rankings differ, twice as many")
    kendall_w: float = Field(0.6, ge=0, le=1, description="Rankings differ when Kendall's W is below this in any dimension")
    most: float = Field(
        0.10, gt=0, le=1, description="With a larger share of the rated groups in the queue, the page advises a better rubric"
    )


class QualityConfig(Config):
    """Rating quality control: targets, limits for annotators, re-annotation."""

    experts: tuple[str, ...] = Field((), description="Annotators whose agreeing ratings are gold for all others")
    exclude: tuple[str, ...] = Field((), description="Annotators whose ratings are not accepted, whatever their statistics")
    gold_raters: int = Field(3, ge=1, description="Experts who must have rated a cell, at most one level apart, to make it gold")
    least_groups: int = Field(15, ge=2, description="Groups shared with other raters that are needed before an annotator is assessed")
    window: int = Field(25, ge=2, description="Groups at each end of an annotator's work that drift compares")
    targets: tuple[Target, ...] = Field(default_factory=_targets, description="Agreement to reach")
    exam: ExamRules = Field(ExamRules(), description="Exam on gold")
    attention: AttentionRules = Field(AttentionRules(), description="When an annotator needs attention")
    remove: RemovalRules = Field(RemovalRules(), description="When ratings are not accepted")
    reannotate: ReannotationRules = Field(ReannotationRules(), description="Re-annotation and adjudication queues")


class SimulatedRaters(Config):
    """Simulated raters of the built-in toy world, biased and noisy; one per group, several in the overlap."""

    overlap: float = Field(0.2, ge=0, le=1, description="Share of groups that more than one rater rates")
    raters: int = Field(2, ge=2, le=6, description="Raters of such a group")
    noise: Literal["even", "by_flaw"] = Field(
        "even", description="even: raters are as sure of every edit; by_flaw: they differ more over some flaws (docs/toy-world.md)"
    )


class BenchConfig(Config):
    """A benchmark from expert ratings (`pipeline annotate build-bench`), by default as large as the paper's first release."""

    round: Round = Field("benchmark", description="Round of the experts' ratings")
    split: Literal["validation", "train", "all"] = Field("validation", description="Sources that become items")
    pairs: int = Field(186, ge=0, description="Comparisons of 2 edits")
    triples: int = Field(150, ge=0, description="Strict orders of 3 edits")
    quadruples: int = Field(148, ge=0, description="Strict orders of 4 edits")
    tie_share: float = Field(0.25, ge=0, le=1, description="Share of the comparisons of 2 that are ties")


class PlanConfig(Config):
    """Assignment of groups to roles. It is drawn at export from hashes of the group ids, before anybody has rated."""

    overlap: float = Field(0.2, ge=0, le=1, description="Share of groups with overlap_raters raters; the others have one")
    overlap_raters: int = Field(2, ge=2, description="People per group of the overlap")
    calibration: int = Field(0, ge=0, description="Groups that everybody rates first")
    gold: str | None = Field(None, description="File of expert ratings (long or wide); source of the training, exam and hidden gold groups")
    training_groups: int = Field(15, ge=0, description="Gold groups for training, with feedback")
    exam_groups: int = Field(10, ge=1, description="Gold groups in each of the two exam forms")
    hidden_gold: float = Field(0.03, ge=0, lt=1, description="Share of hidden gold groups in each person's production work")
    experts: tuple[str, ...] = Field((), description="Annotators who alone get adjudication and benchmark groups; empty: everybody")
    pilot_raters: int = Field(3, ge=1, description="People per group of a pilot (`export --round pilot`)")
    benchmark_raters: int = Field(3, ge=1, description="Experts per group of a benchmark (`export --round benchmark`)")
    ranking_raters: int = Field(3, ge=1, description="People who rank a group (`export --round ranking`)")

    @field_validator("experts")
    @classmethod
    def _are_pseudonyms(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            digits = name.removeprefix("annotator-")
            if digits == name or len(digits) < 2 or not (digits.isascii() and digits.isdigit()):
                raise ValueError(f"{name!r} is no pseudonym of an annotator such as annotator-01; see `pipeline annotate roster list`")
        return names


class ServeConfig(Config):
    """The rating page (`pipeline annotate serve`)."""

    port: int = Field(8321, ge=0, le=65535, description="Port to listen on; 0: any free one")
    lease_minutes: float = Field(30, gt=0, description="Minutes for which a group is reserved for the person who opened it")
    requests_per_minute: int = Field(600, ge=1, description="Requests that one link may make, images included")


class AnnotateConfig(Config):
    """Ratings: their scale, their source and their checks."""

    scale_min: int = Field(1, description="Lowest score (paper A.2: 1, very poor)")
    scale_max: int = Field(4, description="Highest score (paper A.2: 4, very good)")
    scale_step: float = Field(1.0, gt=0, description="Step of the scores; 0.1 for a slider from 1 to 5")
    dimensions: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], ...] = Field(
        DIMENSIONS, min_length=1, description="Rated dimensions, in lower case with underscores"
    )
    rubric_version: str = Field("v1", pattern=r"^[A-Za-z0-9_-]+$", description="Version of the rubric: the name of its file")
    rubrics: str | None = Field(None, description="Folder of your own rubrics: <version>.md, and <version>.<language>.md")
    simulate: SimulatedRaters | None = Field(None, description="Simulated raters; leave out when people rate")
    plan: PlanConfig = Field(PlanConfig(), description="Overlap, calibration and gold groups")
    serve: ServeConfig = Field(ServeConfig(), description="The rating page")
    quality: QualityConfig = Field(QualityConfig(), description="Quality control (docs/annotation-quality.md)")
    benchmark: BenchConfig = Field(BenchConfig(), description="Benchmark from ratings of experts")

    @model_validator(mode="after")
    def _scale_has_its_bounds_as_levels(self) -> AnnotateConfig:
        steps = (self.scale_max - self.scale_min) / self.scale_step
        if round(steps) < 1 or abs(steps - round(steps)) > 1e-6:
            raise ValueError(
                f"annotate.scale_step {self.scale_step:g} does not lead from annotate.scale_min {self.scale_min} to annotate.scale_max "
                f"{self.scale_max} in whole steps; give a larger scale_max, or a step that divides the range"
            )
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ValueError(f"annotate.dimensions has a dimension twice: {', '.join(self.dimensions)}; keep one")
        return self
