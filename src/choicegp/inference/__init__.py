"""What we believe after seeing choices."""
