"""When a fit gains no more, on made-up scores; nothing is compiled."""

import numpy as np

from choicegp.inference.sparse.stopping import N_LEVELS, LastGain, Patience, Scored


def scored(each) -> Scored:
    return Scored(float(np.mean(each)), np.asarray(each, float))


def test_a_gain_larger_than_its_standard_error_counts_however_small():
    rng = np.random.default_rng(0)
    before = rng.normal(-1.0, 1.0, size=400)
    patience = Patience(200, part=0.02)
    start = LastGain(scored(before), 0)
    # All sets gain a thousandth of the score: far below the part, and far above the paired error.
    assert patience.after(start, scored(before + 0.001 + rng.normal(0.0, 1e-4, 400)), 50).step == 50
    # The same mean gain, within the noise of the sets, is none.
    assert patience.after(start, scored(before + 0.001 + np.resize([0.1, -0.1], 400)), 50) == start


def test_steps_become_smaller_before_a_fit_ends():
    patience = Patience(200, part=0.02)
    progress, levels = LastGain(Scored(-1.0, np.zeros(0)), 100), []
    for step in range(150, 1000, 50):
        progress = patience.after(progress, Scored(-1.0, np.zeros(0)), step)
        levels.append(progress.level)
        if patience.is_spent(progress, step):
            break
    assert levels[:3] == [0, 0, 0]
    assert progress.level == N_LEVELS
    assert step == 100 + 200 + N_LEVELS * 100
    # A gain at a lower level makes the fit wait again, with the smaller steps.
    gained = patience.after(progress, Scored(-0.9, np.zeros(0)), step)
    assert gained.level == N_LEVELS
    assert not patience.is_spent(gained, step)


def test_patience_is_counted_in_passes_over_the_sets():
    assert Patience.for_sets(36_864, 256, 0.02).n_steps == 432
    assert Patience.for_sets(1_000, 256, 0.02).n_steps == 200
    assert Patience.for_sets(10**6, 512, 0.02).n_steps == 600
