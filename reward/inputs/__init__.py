"""From an edit to what the model reads: images, prompt, tree, packed batch."""
