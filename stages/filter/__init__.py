"""Step filter: inspection, gates, contamination, scores, selections, shards."""
