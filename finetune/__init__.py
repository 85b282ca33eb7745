"""The image editor as a library: a small FLUX-style editor, and its training on edited pairs."""
