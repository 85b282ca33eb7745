"""Step evaluate-editor: benchmark of the base editor and of every arm."""
