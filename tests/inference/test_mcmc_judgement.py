"""How far draws can be trusted: R-hat, effective numbers, divergent steps."""

import numpy as np

from choicegp.inference.mcmc import judged


def test_bad_mixing_is_told():
    apart = np.random.default_rng(0).normal(size=(4, 100, 1, 3)) + 2.0 * np.arange(4)[:, None, None, None] * [0, 1, 2]
    status, message = judged(apart, 3, complete=True)
    assert status == "stopped"
    assert "3 divergent" in message
    assert "have not mixed: make more draws, by MCMC(n_draws=...) or max_iter with inference='mcmc'" in message


def test_good_mixing_is_told_and_levels_do_not_count():
    good = np.random.default_rng(0).normal(size=(4, 400, 2, 3))
    status, message = judged(good, 0, complete=True)
    assert status == "converged"
    assert message.startswith("1600 draws, R-hat at most 1.0")
    assert "divergent" not in message
    # Choices do not say where zero is.
    level = 50.0 * np.arange(4)[:, None, None, None]
    assert judged(good + level, 0, complete=True) == judged(good, 0, complete=True)
    assert judged(good, 0, complete=False) == ("stopped", message + "; the time limit ended it early")


def test_too_few_draws_are_not_judged():
    status, message = judged(np.zeros((4, 3, 1, 2)), 0, complete=True)
    assert status == "stopped"
    assert message.startswith("12 draws are too few to see whether the chains mix: make more draws")
