"""Data sets of edits: one reader per kind, and what they share."""
