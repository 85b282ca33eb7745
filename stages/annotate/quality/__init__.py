"""Step annotation-qc: which ratings are accepted."""
