"""A report to mail: what a model found, and how far it can be trusted, in one file."""
