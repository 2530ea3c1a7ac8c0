"""Inference for many people: the population's utilities, and each person's own around them."""
