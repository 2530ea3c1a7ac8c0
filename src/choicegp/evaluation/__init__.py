"""How good predictions are, and what drives the utilities."""
