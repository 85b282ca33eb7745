"""What a model was trained on: domain, data sets, raters and days of rating. Saved beside the weights, shown on the card, and compared
with what it scores: scores of images of another domain were never tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

Domain = Literal["toy", "photographs"]
"""``toy``: drawn scenes of the built-in toy data set. ``photographs``: everything else."""
FILE = "origin.json"
OTHER_DOMAIN = "other-domain"
"""Flag of a score of an image of another domain."""
MEANING: dict[Domain, str] = {"toy": "drawn scenes of the built-in toy data set", "photographs": "photographs"}


class Origin(BaseModel):
    """Facts of a training that decide where its scores mean something."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domains: tuple[Domain, ...]
    data: dict[str, int]
    """Rated groups by data set."""
    benchmarks: dict[str, int] = {}
    """Rated groups whose source is an item of a benchmark, by benchmark: what this model selects has an advantage there."""
    raters: dict[str, int]
    """Raters by kind: ``people``, ``simulated`` or ``imported``. An imported data set that hides its raters counts as one."""
    rated: tuple[str, str] | None = None
    """First and last day of the ratings (ISO 8601), where they have times."""

    def lines(self) -> dict[str, str]:
        """Name and value of each fact, for the card."""
        said = {
            "domain": ", ".join(MEANING[domain] for domain in self.domains),
            "data": ", ".join(f"{name} ({count:,} rated groups)" for name, count in self.data.items()),
            "raters": ", ".join(f"{count} {kind}" for kind, count in self.raters.items()),
        }
        if self.benchmarks:
            seen = ", ".join(f"{name} ({count:,} rated groups)" for name, count in self.benchmarks.items())
            said["benchmarks seen"] = f"{seen}: results there are not independent of this model"
        return said | ({"rated": " to ".join(self.rated)} if self.rated else {})


def read_origin(model: Path) -> Origin | None:
    """The origin of a saved model; None where it does not say. Raises ValueError for a damaged file."""
    file = model / FILE
    if not file.exists():
        return None
    try:
        return Origin.model_validate_json(file.read_bytes())
    except ValueError:
        raise ValueError(f"{file} is damaged; restore it, or delete it: then the model does not say what it was trained on") from None


def other_domain(origin: Origin | None, domain: Domain | None) -> str | None:
    """A sentence when a model scores images of a domain that it was not trained on; None when it was, or when either is unknown."""
    if origin is None or not origin.domains or domain is None or domain in origin.domains:
        return None
    trained = " and ".join(MEANING[known] for known in origin.domains)
    return f"the reward model was trained on {trained} and scores {MEANING[domain]}: nothing says that these scores mean anything"
