"""A model's training step and scoring pass at full size on torch's meta device: faults, figures, no weights."""
