"""Step consensus: one score per candidate and dimension."""
