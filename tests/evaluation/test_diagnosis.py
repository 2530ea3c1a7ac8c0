"""Every finding of a diagnosis comes with one sentence of advice."""

import pytest

from choicegp.evaluation.diagnosis import in_words

COVERS = {
    (0.2, True): (
        "covers the posterior well (Pareto k = 0.20, 900 of 1000 draws effective)",
        "Keep inference='dense'.",
    ),
    (0.6, True): ("is usable (Pareto k = 0.60", "compare intervals on which a decision depends with inference='mcmc'."),
    (0.8, True): ("is usable (Pareto k = 0.80", "Keep inference='dense' for probabilities"),
    (0.8, False): ("misses parts of the posterior", "Fit again with inference='mcmc' before you use intervals."),
}
MOVES = {
    (900.0, 0.001): "by 0.001 on average. This is small: probabilities by inference='dense' can be used.",
    (900.0, 0.05): "by 0.050 on average. This is large: compare probabilities on which a decision depends",
    (99.0, 0.001): "on average. Too few draws are effective to rely on this figure: pass n_draws=10000.",
}


@pytest.mark.parametrize(("k", "trusted"), COVERS)
@pytest.mark.parametrize(("effective", "moved"), MOVES)
def test_findings_have_advice(k, trusted, effective, moved):
    text = in_words(k, effective, 1000, moved, trusted)
    finding, advice = COVERS[k, trusted]
    assert text.startswith("the Gaussian approximation ")
    assert finding.replace("900 of", f"{effective:.0f} of") in text
    assert advice in text
    assert MOVES[effective, moved] in text
    assert text.index(advice) < text.index("Weighting moves")
