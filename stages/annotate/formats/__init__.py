"""Formats of rating files: one file per format, each from a file to a delivery."""
