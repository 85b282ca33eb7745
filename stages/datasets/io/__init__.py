"""Reading files of data sets: which files there are, where a row begins in them, and what a cell contains."""
