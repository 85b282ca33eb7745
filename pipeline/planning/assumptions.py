"""What estimates assume of a GPU, unless a command is given other numbers."""

PEAK_TFLOPS, UTILISATION = 312.0, 0.40
"""Dense bf16 of an A100 or A800, and the share of it that the model gets (MFU)."""
