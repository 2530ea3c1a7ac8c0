"""Arrays in signatures, and the letters of their shapes.

Shapes are written with jaxtyping, ``Float[AnyArray, "d a m"]``: one letter means one length throughout a signature,
``...`` any axes, and ``*batch`` any axes that are the same throughout.  The tests check them whenever a function is
called or traced; elsewhere they cost a few milliseconds at import.

====== ===========================================================
d      utilities
a      objects of a set, padding included
m      sets
S      samples of the utilities
P      unordered pairs of the a objects
n, t   objects, pairs of objects
c      features
Q      nodes of a quadrature
r      rejected objects
====== ===========================================================
"""

import numpy as np
from jax import Array
from jaxtyping import Bool, Float

AnyArray = Array | np.ndarray
"""An array of JAX, which may stand for a value that is not known yet, or an array of NumPy."""

Parameters = float | Float[AnyArray, "..."]
"""Parameters of a kernel: one, one per feature, and in a prior one row per utility."""

Scalar = float | Float[AnyArray, ""]
"""One number, as Python, NumPy or JAX hold it."""

Lapse = Scalar | None
"""Probability that an answer is a random subset; None where nobody lapses."""

Samples = Float[AnyArray, "d a m S"]
"""Utilities of the objects of sets, at samples."""

Masks = Bool[AnyArray, "a ..."]
"""Marks objects of sets, of a batch along trailing axes; `MasksOfSets` are for many samples."""

MasksOfSets = Bool[AnyArray, "a m"]

OfBatch = Float[AnyArray, "d a *batch"]
"""Utilities of the objects of sets, of a batch along trailing axes."""

MasksOfBatch = Bool[AnyArray, "a *#batch"]
