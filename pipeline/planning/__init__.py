"""`pipeline plan` and `pipeline rehearse`: state, work and estimated cost, before anything runs."""
