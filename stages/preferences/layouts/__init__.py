"""Layouts of exported preference pairs: one file per layout, and the content that they share."""
