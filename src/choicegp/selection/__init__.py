"""How many utilities there are."""
