"""The numerical core gives the same numbers whichever kernels OpenBLAS has chosen for the processor at hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = """
import json
import jax, numpy as np
from choicegp import ChoiceData
from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import Learning, Task, Watch, infer
from choicegp.inference.expectation import expect, marginals, quasi_normals
from choicegp.compute.progress import Clock
from choicegp.inference.posterior import conclude, factorise_on_host, prior_covariance
from choicegp.inference.problem import pose
from choicegp.inference.sites import add_up, psd_part, zero_sites
from choicegp.model.kernels import RBF
from choicegp.model.prior import UtilityPrior

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
shown = [one for _ in range(2) for one in rng.permutation(12).reshape(4, 3)]
data = ChoiceData.from_utilities(X, np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 1])]), shown)
problem = pose(data, data.X, np.arange(12), effects=False)
[batch] = problem.batches
prior = UtilityPrior.create(RBF(1.5, 2.7), 2, 2)
points = quasi_normals(problem, 2, 64, 0)
values = {}

centring = np.eye(3) - 1 / 3
matrix = np.stack([s * scale * centring for s in (1, -1) for scale in (1e-12, 1.0, 1e12)], axis=-1)[None]
values["psd_part"] = np.asarray(jax.jit(psd_part)(matrix)) / np.abs(matrix).max(axis=(0, 1, 2))

covariance = np.asarray(prior_covariance(prior, problem))
mean = np.asarray(rng.normal(size=(2, len(problem.valid))))

def site_step(mean, covariance):
    expected = expect(marginals(mean, covariance, batch), batch, points[0])
    return add_up(batch, np.ones(batch.rows.shape[1]), expected, mean, zero_sites(*mean.shape), 0.0 * mean)

sites, forces = jax.jit(site_step)(mean, covariance)
values |= {"sites": sites.precision, "linear": sites.linear, "forces": forces}
values["root"] = factorise_on_host(covariance).root

task = Task(prior, problem, Learning(None, learn_prior=False), Watch(Clock(None)), n_starts=1, max_iter=10, tol=1e-9)
fit = infer(DenseInference(task))
posterior, bound = conclude(fit.prior, problem, fit.factor, fit.sites, points, fit.posterior.lapse)
values |= {"mean": posterior.mean, "bound": bound}
print(json.dumps({name: np.asarray(value).ravel().tolist() for name, value in values.items()}))
"""


def has_avx512() -> bool:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def test_the_numerical_core_agrees_under_every_kernel():
    # On other processors OpenBLAS does not know these names and chooses as always.
    names = ["Haswell", "Zen", "Nehalem"] + ["SkylakeX"] * has_avx512()
    results = {}
    for name in names:
        # Programs hold constants that NumPy computed: every kernel has a folder of its own.
        cache = os.environ["CHOICEGP_CACHE"]
        environment = os.environ | {"OPENBLAS_CORETYPE": name, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        environment["CHOICEGP_CACHE"] = cache if cache == "off" else os.path.join(cache, name)
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        results[name] = json.loads(ended.stdout)
    for name in names[1:]:
        for part, values in results["Haswell"].items():
            assert np.isfinite(values).all(), part
            # Ten steps of a fit magnify what rounding leaves: at most to this part of the largest number.
            tolerance = 1e-10 * np.abs(values).max()
            np.testing.assert_allclose(results[name][part], values, rtol=0, atol=tolerance, err_msg=f"{name}: {part}")
