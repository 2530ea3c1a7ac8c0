"""How choices arise: kernels, priors and the likelihood of a choice."""
