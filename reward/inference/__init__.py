"""Scoring of edits."""
