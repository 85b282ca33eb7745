"""Step next-annotations: which groups to rate next."""
