"""Contamination: references as hashes, and which edits match one."""
