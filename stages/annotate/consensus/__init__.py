"""Step consensus: one score per candidate and dimension from several raters."""
