"""Shapes in signatures are checked in tests: arguments, results and fields of records. A user's process checks none."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from choicegp.model.derivatives import ExpectedDerivatives, expected_derivatives
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.likelihood import log_likelihood
from choicegp.model.prior import Objects, UtilityPrior

U = jnp.zeros((2, 3, 4, 5))  # d, a, m, S
MASK = jnp.ones((3, 4), bool)


@pytest.mark.parametrize(
    ("u", "present", "chosen"),
    [
        (U[..., 0], MASK, MASK),  # no samples
        (U, MASK[:2], MASK),  # objects
        (U, MASK, MASK[:, :3]),  # sets
        (U, MASK, MASK.astype(float)),  # not a mask
        (U.astype(int), MASK, MASK),  # not utilities
    ],
)
@pytest.mark.parametrize("call", [lambda f, *args: f(*args), lambda f, *args: jax.jit(f)(*args), jax.eval_shape])
def test_a_wrong_shape_is_refused(u, present, chosen, call):
    assert call(expected_derivatives, U, MASK, MASK).gradient.shape == (2, 3, 4)
    with pytest.raises(TypeCheckError, match="expected_derivatives"):
        call(expected_derivatives, u, present, chosen)


def test_masks_of_a_likelihood_have_one_row_per_object():
    with pytest.raises(TypeCheckError, match="log_likelihood"):
        log_likelihood(U[:, :, 0, 0], MASK[:2, 0], MASK[:2, 0])
    with pytest.raises(TypeCheckError, match="sampled_log_likelihood"):
        DISCERNIBILITY.sampled(U, MASK[:2], MASK[:2])


def test_features_of_two_groups_of_objects_agree_in_number():
    with pytest.raises(TypeCheckError, match="gram"):
        RBF().gram(jnp.zeros((4, 2)), jnp.zeros((5, 3)))


def test_fields_of_a_record_are_checked_where_it_is_used():
    prior = UtilityPrior.create(RBF(), n_features=2, n_utilities=3)
    good, few = Objects(np.zeros((5, 2)), np.arange(5)), Objects(np.zeros((5, 2)), np.arange(4))
    assert prior.covariance(good, Objects(np.zeros((4, 2)), np.arange(4))).shape == (3, 5, 4)  # n is a record's own
    with pytest.raises(TypeCheckError, match="variance"):
        prior.variance(few)
    ExpectedDerivatives(*"abcd")  # JAX, too, makes records of what are no arrays


def test_outside_the_tests_nothing_is_checked():
    code = (
        "import sys, jax.numpy as jnp; from choicegp.model.kernels import RBF\n"
        "print(RBF.gram.__code__.co_filename.endswith('kernels.py'), 'beartype' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["True", "False"], ended.stderr
