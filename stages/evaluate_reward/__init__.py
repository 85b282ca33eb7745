"""Step evaluate-reward: held-out groups and published benchmarks."""
