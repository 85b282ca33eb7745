"""Training of editors: the objective over encoded pairs, adapters, recomputation, held-out loss, and the small editor's training."""
