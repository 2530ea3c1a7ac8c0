"""Kernels to give to `choicegp.ChoiceGP`: by themselves, added or multiplied.

>>> from choicegp.kernels import RBF, Additive
>>> kernel = RBF() + Additive(lengthscale=0.2)
"""

from choicegp.model.kernels import RBF, Kernel, Linear, Matern12, Matern32, Matern52, Product, Sum
from choicegp.model.mapped import Mapped
from choicegp.model.warped import Warped
from choicegp.model.waves import Additive, Periodic

__all__ = [
    "RBF", "Additive", "Kernel", "Linear", "Mapped", "Matern12", "Matern32", "Matern52", "Periodic", "Product", "Sum",
    "Warped",
]  # fmt: skip
