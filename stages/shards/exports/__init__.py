"""Shards as files for other trainers: one file per layout."""
