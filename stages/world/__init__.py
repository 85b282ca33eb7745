"""The built-in toy data set: scenes, exact edits, flawed editors, simulated raters, a pixel judge (numpy, PIL)."""
