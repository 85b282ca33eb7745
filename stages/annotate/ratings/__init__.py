"""Ratings: what is delivered, what may be rated, the one validator, the ledger."""
