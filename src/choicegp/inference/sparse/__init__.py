"""Sparse inference by mini-batches, for any number of objects."""
