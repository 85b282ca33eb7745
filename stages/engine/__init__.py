"""What every step stands on and no step owns: contracts, run directory, units on Ray actors, storage."""
