"""What an inference of one's own is made of, to give to `choicegp.ChoiceGP` as ``inference``.

A subclass of `Method` is a frozen dataclass that holds the options and makes the inference: an object with the four
functions ``begin``, ``step``, ``verdict`` and ``conclude``, which is given a `Task`.  Most inferences end in Gaussian
`Sites`, from which `inferred_from_sites` makes the posterior and scores it.  The page on architecture has one of under
sixty lines.

>>> from choicegp.inferences import Method, Task, Verdict
>>> Verdict("converged", "the gradient is zero").status
'converged'
"""

from choicegp.fitting.methods import Method
from choicegp.inference.coordinates import log_likelihood
from choicegp.inference.driver import Inferred, Task, Verdict, inferred_from_sites
from choicegp.inference.posterior import factorise_on_host
from choicegp.inference.sites import Sites
from choicegp.inference.starts import covariance_at

__all__ = [
    "Inferred", "Method", "Sites", "Task", "Verdict", "covariance_at", "factorise_on_host", "inferred_from_sites",
    "log_likelihood",
]  # fmt: skip
