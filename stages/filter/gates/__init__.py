"""Gates before scoring: one file each."""
