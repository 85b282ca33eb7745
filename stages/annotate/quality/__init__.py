"""Step annotation-qc: rating quality control."""
