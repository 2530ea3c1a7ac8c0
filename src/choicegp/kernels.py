"""Kernels to give to `choicegp.ChoiceGP`: by themselves, added or multiplied.

>>> from choicegp.kernels import RBF, Additive
>>> kernel = RBF() + Additive(lengthscale=0.2)
"""

from choicegp.model.kernels import (
    RBF,
    Additive,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    Sum,
    Warped,
)
from choicegp.model.mapped import Mapped

__all__ = [
    "RBF",
    "Additive",
    "Kernel",
    "Linear",
    "Mapped",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "Sum",
    "Warped",
]
