"""Layouts in which preference pairs leave a run: one file per layout, and what they share."""
