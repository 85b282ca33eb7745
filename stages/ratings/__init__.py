"""Ratings: formats that people deliver, one validator, one append-only ledger, and what the numbers are worth."""
