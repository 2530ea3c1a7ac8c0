"""Files: models and their parts."""
