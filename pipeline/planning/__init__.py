"""`pipeline plan`: state, work and estimated cost of every step."""
