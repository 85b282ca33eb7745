"""The embedded procedural world: scenes, exact edits, flawed editors, simulated raters, a pixel judge (numpy, PIL)."""
