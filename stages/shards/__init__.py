"""Webdataset shards: written, verified, read back, exported."""
