"""Published benchmarks of reward models for image editing, read from local copies: a module each, listed in ``names``.

A module has ``load(path) -> items`` and ``evaluate(items, scores) -> result``. Its docstring describes the data, the layout of a local
copy, the published convention of the figures and a sound one.
"""
