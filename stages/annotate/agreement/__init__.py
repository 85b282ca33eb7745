"""Inter-rater agreement with intervals clustered by group."""
