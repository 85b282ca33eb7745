"""Pairs encoded once, before training: keys by content, entries in bytes, working sizes without stretching."""
