"""What a reward model learns from: groups, pairs, losses."""
