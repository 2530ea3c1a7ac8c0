"""One object to use."""
