"""The commands, one file per group, and what they print."""
