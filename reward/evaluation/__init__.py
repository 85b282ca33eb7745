"""Agreement of scores with preferences, calibration, baselines."""
