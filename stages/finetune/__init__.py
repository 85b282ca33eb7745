"""Step finetune: one editor per selection."""
