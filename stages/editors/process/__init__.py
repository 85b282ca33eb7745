"""Editors that need other package versions: each runs in a process of its own, with the interpreter of its environment."""
