"""What the tests of the model share."""

from collections.abc import Generator

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_promotion() -> Generator[None, None, None]:
    """Raise where JAX would give an array axes that nobody wrote, because a wrong shape may happen to fit."""
    with jax.numpy_rank_promotion("raise"):
        yield
