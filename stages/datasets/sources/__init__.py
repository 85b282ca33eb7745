"""Sources for generation; to become readers of the same table."""
