"""Step generate: sources in, candidates out."""
