"""What annotators get: the plan of who rates what, and the packet."""
