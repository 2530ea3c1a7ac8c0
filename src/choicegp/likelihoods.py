"""Likelihoods of one's own, to give to `choicegp.ChoiceGP` as ``rule``: how likely a choice is, given utilities.

>>> from choicegp.likelihoods import Likelihood
>>> class Mine(Likelihood):
...     def log_prob(self, u, present, chosen):
...         return 0.0 * u.sum()
>>> Mine().name
'Mine'
"""

from choicegp.model.own_likelihood import Likelihood

__all__ = ["Likelihood"]
