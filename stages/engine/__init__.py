"""What every step uses: contracts, run directory, units on Ray actors, storage. Knows no step and no library."""
