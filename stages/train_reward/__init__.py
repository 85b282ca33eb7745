"""Step train-reward."""
