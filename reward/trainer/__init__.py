"""The optimisation loop: resume, checkpoints, EMA, sharding, adapters, curves."""
