"""Ratings: deliveries, the rating task, validation, the ledger."""
