"""Configuration of selections: an order, a bound, and constraints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.engine.config import Config

MOST = 10**12
"""More samples than any data set has: 64 bits hold their sums."""


class QuotasConfig(Config):
    """How many samples of each stratum a selection keeps."""

    by: str = Field(
        min_length=1, description="Column whose values are the strata: task, language, dataset, source, metadata.KEY, flag.NAME ..."
    )
    shares: Literal["proportional", "equal", "like"] | None = Field(
        None, description="proportional to the scored edits, equal, or as many per stratum as the selection named by `like` has"
    )
    numbers: dict[str, Annotated[int, Field(ge=0, le=MOST)]] | None = Field(None, description="Samples per stratum, instead of shares")
    short: Literal["refuse", "refill"] = Field("refuse", description="A stratum with too few: refuse, or take the next best of the others")

    @model_validator(mode="after")
    def _one_kind(self) -> QuotasConfig:
        if (self.shares is None) == (self.numbers is None):
            raise ValueError("quotas need exactly one of shares (proportional, equal, like) and numbers (samples per stratum)")
        if self.numbers is not None and not sum(self.numbers.values()):
            raise ValueError("the numbers of the quotas keep nothing; give at least one stratum a number above 0")
        return self


class AtMostConfig(Config):
    """A bound on samples that resemble each other: of each cluster only the first ones in the rule's order."""

    per: str = Field(min_length=1, description="Column whose equal values are a cluster: source, instruction, metadata.KEY ...")
    count: int = Field(1, ge=1, le=MOST, description="How many of each cluster")
    bits: int = Field(0, ge=0, le=8, description="Of a perceptual hash: hashes that differ in so few bits are one cluster")


class SelectionConfig(Config):
    """One selection: an order, a bound, and constraints. It reads scores, and the columns that quotas and clusters name."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="Name of the selection and of its shards")
    rule: Literal["top", "bottom", "random", "closest-to-source", "all"] = Field(description="The order: top is the best value first")
    value: Literal["overall", "lower-bound", "likert", "product", "minimum"] = Field(
        "overall", description="What top, bottom and all order by: overall is the mean of the dimensions' raw means"
    )
    sigmas: float = Field(1.0, gt=0, description="k of the value lower-bound: overall mean - k sigma")
    scale: Literal["likert", "percentile"] = Field("likert", description="Scale of the dimensions in the values product and minimum")
    count: int | None = Field(None, ge=1, description="How many to keep")
    fraction: float | None = Field(None, gt=0, le=1, description="Share of the scored edits to keep, instead of count")
    like: str | None = Field(None, description="Keep as many as the selection of this name, instead of count")
    threshold: float | None = Field(None, description="Keep only values at least this; for bottom and closest-to-source at most this")
    quantile: float | None = Field(None, ge=0, le=1, description="A threshold given as a quantile of the scored edits' values")
    quotas: QuotasConfig | None = Field(None, description="How many of each stratum")
    at_most: AtMostConfig | None = Field(None, description="How many of each cluster")
    without_flags: tuple[str, ...] = Field((), description="Leave out edits with one of these flags: names of gates, contamination")
    seed: int = Field(0, description="Seed of the random rule")

    @model_validator(mode="after")
    def _rule_and_bounds_fit(self) -> SelectionConfig:
        numbers = None if self.quotas is None else self.quotas.numbers
        sizes = {"count": self.count, "fraction": self.fraction, "like": self.like, "quotas.numbers": numbers}
        sizes = [name for name, value in sizes.items() if value is not None]
        bounds = [name for name in ("threshold", "quantile") if getattr(self, name) is not None]
        if len(sizes) > 1 or len(bounds) > 1:
            raise ValueError(f"rule {self.rule} was given {' and '.join(sizes if len(sizes) > 1 else bounds)}: give one of them")
        if self.rule == "all" and (sizes or bounds or self.quotas):
            raise ValueError("rule all keeps everything: leave out count, fraction, like, threshold, quantile and quotas")
        if self.rule != "all" and not sizes and not bounds:
            raise ValueError(f"rule {self.rule} needs a size or a bound: one of count, fraction, like, threshold and quantile")
        if self.rule == "random" and bounds:
            raise ValueError(f"rule random has no values to compare with a {bounds[0]}: leave it out")
        if self.rule in ("random", "closest-to-source") and self.value != "overall":
            raise ValueError(f"rule {self.rule} does not order by a score: leave value out")
        if self.quotas is not None and not sizes:
            raise ValueError(f"quotas by shares divide a number of samples: give count, fraction or like beside the {bounds[0]}")
        if self.quotas is not None and self.quotas.shares == "like" and self.like is None:
            raise ValueError("quotas.shares like takes the strata of another selection: name it with like")
        if self.like == self.name:
            raise ValueError(f"selection {self.name} cannot be like itself")
        return self
