"""Published benchmarks of reward models for image editing, read from local copies: a module each, listed in ``names``.

A module has ``load(path) -> items`` and ``evaluate(items, scores) -> result``. Its docstring says what its data is, how a local copy is
laid out, and what is published and what is sound about its figures.
"""
