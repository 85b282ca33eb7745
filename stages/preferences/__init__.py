"""Step preferences: preference pairs from ratings, and their export."""
