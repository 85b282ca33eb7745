"""Configuration of quality control. docs/annotation-quality.md gives the reasons of the defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
    """An agreement that ratings of a round must reach; a round without ratings is not judged."""

    round: Round = Field(description="Round that is judged")
    dimension: str = Field(description="Dimension that is judged")
    statistic: Statistic = Field("alpha_ordinal", description="Statistic that is judged")
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
    """What an annotator's ratings of round exam must reach on gold, in every dimension."""

    groups: int = Field(10, ge=1, description="Gold groups that an exam takes at least; with fewer there is no verdict")
    kappa: float = Field(0.65, le=1, description="Quadratic weighted kappa with gold, at least")
    exact: float = Field(0.50, ge=0, le=1, description="Share of scores that experts gave too, at least")
    within_one: float = Field(0.93, ge=0, le=1, description="Share of scores at most one level off, at least")
    severity: float = Field(0.30, gt=0, description="Mean difference from gold, at most")


class AttentionRules(Config):
    """When an annotator needs the lead's attention."""

    kappa: float = Field(0.55, le=1, description="Quadratic weighted kappa with the others below this")
    severity: float = Field(0.25, gt=0, description="Mean difference from the others beyond this, either way")
    drift: float = Field(0.25, gt=0, description="Change of that difference from the first to the newest window beyond this, either way")
    pace: float = Field(0.33, ge=0, lt=1, description="Median seconds per group below this share of the annotators' median")


class RemovalRules(Config):
    """When the ratings of an annotator are not accepted."""

    kappa: float = Field(0.40, le=1, description="Upper end of the 95 % interval of kappa with the others below this")
    gold_within_one: float = Field(0.80, ge=0, le=1, description="Share of scores on gold at most one level off below this")
    failed_exam: bool = Field(True, description="An exam that was taken and failed")
    outliers: Literal["off", "bt500", "two-sd"] = Field(
        "off", description="bt500: ITU-R BT.500 observer screening; two-sd: EditHF's, scores beyond 2 SD of their item (6 raters per item)"
    )
    outlier_share: float = Field(0.05, gt=0, lt=1, description="Share of outliers above which an annotator goes")


class ReannotationRules(Config):
    """Which groups go to a further rater, or to adjudication."""

    difference: float = Field(0.9, gt=0, description="Mean difference between the raters of a group above this")
    raters: int = Field(3, ge=2, description="With so many raters no further one is asked; cells two levels apart are adjudicated")
    rankings: int = Field(3, ge=2, description="People who rank a group; where they differ, as many again")
    kendall_w: float = Field(0.6, ge=0, le=1, description="Kendall's W of their rankings below this, in any dimension: they differ")
    most: float = Field(0.10, gt=0, le=1, description="Share of the rated groups above which the page asks for a better rubric instead")


class QualityConfig(Config):
    """Quality control of ratings: what is judged, when annotators are removed, what is rated again."""

    experts: tuple[str, ...] = Field((), description="Annotators whose agreeing ratings are gold for all others")
    exclude: tuple[str, ...] = Field((), description="Annotators whose ratings are not accepted, whatever their figures")
    gold_raters: int = Field(3, ge=1, description="Experts who make a cell gold when they are at most one level apart")
    least_groups: int = Field(15, ge=2, description="Nobody is judged on fewer groups rated by others too")
    window: int = Field(25, ge=2, description="Groups at each end of an annotator's work that drift compares")
    targets: tuple[Target, ...] = Field(default_factory=_targets, description="Agreement to reach")
    exam: ExamRules = Field(ExamRules(), description="Exam on gold")
    attention: AttentionRules = Field(AttentionRules(), description="When the lead should look")
    remove: RemovalRules = Field(RemovalRules(), description="When ratings are not accepted")
    reannotate: ReannotationRules = Field(ReannotationRules(), description="What is rated again")
