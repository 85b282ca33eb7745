"""Benchmarks of the editor, a file each; ``stages.evaluate_editor.config`` lists them."""
