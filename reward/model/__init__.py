"""The reward model: backbone, heads, aggregation, calibration, its files and released checkpoints."""
