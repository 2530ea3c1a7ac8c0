"""What would be chosen."""
