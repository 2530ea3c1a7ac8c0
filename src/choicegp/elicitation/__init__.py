"""What to ask next, and a log of answers that is never lost."""
