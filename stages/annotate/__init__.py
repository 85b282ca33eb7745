"""Step annotate and what belongs to human ratings: packet, page, formats, ledger, agreement, quality, consensus, benchmark."""
