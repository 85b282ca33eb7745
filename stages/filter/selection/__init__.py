"""Selections: rules that read scores only."""
