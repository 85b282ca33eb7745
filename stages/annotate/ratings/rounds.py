"""Rounds: the phases of a rating project. Every rating has one; docs/annotation-quality.md says what each is for."""

from __future__ import annotations

ROUNDS = ("pilot", "exam", "calibration", "production", "reannotation", "adjudication", "benchmark", "ranking")
_, EXAM, CALIBRATION, PRODUCTION, REANNOTATION, ADJUDICATION, _, RANKING = ROUNDS
"""Rounds that have rules of their own. The scores of a ranking are ranks: 1, the best, to the number of candidates of the group."""
DEFAULT_ROUND = PRODUCTION
"""Of a rating that names none."""
