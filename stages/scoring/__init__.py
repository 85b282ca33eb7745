"""Scoring of edits by a reward model: preparation, rows of scores, metrics of an actor."""
