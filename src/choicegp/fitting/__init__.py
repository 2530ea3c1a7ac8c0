"""From options to a fitted model."""
