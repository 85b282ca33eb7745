"""Editors: what turns a source into a candidate."""
