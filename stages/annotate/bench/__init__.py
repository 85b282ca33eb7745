"""Step build-bench: a benchmark from experts' ratings."""
