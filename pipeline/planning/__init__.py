"""`pipeline plan`: what would be done and what it costs."""
