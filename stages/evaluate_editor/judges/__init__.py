"""Judges of edits, a file each; ``stages.evaluate_editor.config`` lists them."""
