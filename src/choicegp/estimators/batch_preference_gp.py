"""BatchPreferenceGP: learn one utility from the best object of each set."""

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import check_training_data
from choicegp.estimators.utility_gp import UtilityGP
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.options import FitOptions
from choicegp.model.error_models import ERROR_MODELS
from choicegp.model.kernels import Kernel
from choicegp.model.prior import HyperPriors
from choicegp.prediction.kinds import best_predictor

_FIXED = {"n_utilities": 1, "inference": "dense", "lapse": 0.0, "n_inducing": None, "batch_size": None,
          "learn_inducing": False}  # fmt: skip


@dataclass(eq=False, repr=False)
class BatchPreferenceGP(UtilityGP):
    r"""Batch preferences: one utility, a Gaussian process, and one best object of each set (Siivola et al. 2021).

    The inference is dense, as in ``ChoiceGP(inference="dense")``.

    Parameters
    ----------
    noise : {"gaussian", "discernibility"}
        How a person errs. "gaussian": every object's utility has noise of its own, and the best is the largest
        (eq:likelihoodbatch); "discernibility": objects are harder to distinguish the closer they are, the paper's own
        likelihood divided by its sum over the objects of the set, as in ``ChoiceGP(n_utilities=1)``.
    kernel : str or Kernel
        As in `ChoiceGP`, and so are all that follow: object_effects, standardize, hyperpriors, learn_hyperparameters,
        n_restarts, max_iter (by default 300), max_seconds, tol, device, n_jobs, progress and random_state.

    Attributes
    ----------
    elbo_ : float
        Evidence lower bound, scored on fresh points, without hyperpriors.
    fit_result_ : FitResult
    errors_ : ErrorModel
    posterior_ : Posterior
    data_ : ChoiceData
        The training data.
    encoding_ : FeatureEncoding

    Notes
    -----
    With :math:`c_v = (u(o) - u(v)) / \sigma` the probability that :math:`o` is the best of the set is
    :math:`E_w[\prod_v \Phi(c_v + w)]`, :math:`w \sim N(0, 1)`, under Gaussian noise. The paper states that its own
    :math:`\prod_v \Phi(c_v)` is a lower bound of it, which is not so: for one rejected object and :math:`c_v = 1` the
    two are 0.760 and 0.841. What holds is :math:`E_w[\prod_v \Phi(c_v + w)] \ge \prod_v \Phi(c_v / \sqrt 2)`, with
    equality for one rejected object.

    Examples
    --------
    >>> from choicegp import BatchPreferenceGP, ChoiceData
    >>> data = ChoiceData.from_sets([[0.0], [1.0], [2.0], [3.0]], [[0, 1, 2], [1, 2, 3], [0, 3]], [[2], [3], [3]])
    >>> model = BatchPreferenceGP(n_restarts=1, max_iter=40).fit(data)
    >>> model.predict(data)
    [array([2]), array([3]), array([3])]
    >>> round(float(model.predict_proba(data)[0].sum()), 6)
    1.0
    """

    _format = "choicegp-BatchPreferenceGP"
    _predictor = staticmethod(best_predictor)
    noise: str = "gaussian"
    _: KW_ONLY
    kernel: str | Kernel = "rbf"
    object_effects: bool = False
    standardize: bool = True
    hyperpriors: HyperPriors | None = HyperPriors()  # noqa: RUF009 - immutable
    learn_hyperparameters: bool = True
    n_restarts: int | None = None
    max_iter: int | None = None
    max_seconds: float | None = None
    tol: float = 0.02
    device: str = "auto"
    n_jobs: int | None = None
    progress: bool | str = "auto"
    random_state: int | None = 0

    def fit(self, data: ChoiceData, y: None = None) -> Self:
        """Learn the utility and its hyperparameters from the best object of each set.

        Parameters
        ----------
        data : ChoiceData
            With choices of one object each.
        y : None
            Ignored; scikit-learn passes it.

        Returns
        -------
        BatchPreferenceGP
            Itself.
        """
        check_training_data(data, "fit")
        if not isinstance(self.noise, str) or self.noise not in ERROR_MODELS:
            raise ChoiceGPError(f"noise must be one of {', '.join(ERROR_MODELS)}; got {self.noise!r}")
        options = FitOptions.validated({**_FIXED, **self.get_params(deep=False)})
        _check_one_best(data)
        with computing(self.device):
            return self._keep(fit_posterior(data, options._replace(errors=ERROR_MODELS[self.noise]), None))

    def log_prob(self, data: ChoiceData, normalized: bool = False) -> np.ndarray:
        """Return log P(o is the best of A | training data) of each set's best object.

        These probabilities sum to one over the objects of a set.

        Parameters
        ----------
        data : ChoiceData
            With choices.
        normalized : bool
            Whether to average over the samples that `predict_proba` uses, which are fewer.

        Returns
        -------
        ndarray (m,)
        """
        _check_one_best(self._checked(data))
        return super().log_prob(data, normalized)


def _check_one_best(data: ChoiceData) -> None:
    """Refuse sets of which not exactly one object was chosen."""
    if data.flat_chosen is None or len(data) == 0:
        return
    n_chosen = np.add.reduceat(data.flat_chosen.astype(int), data.offsets[:-1])
    wrong = np.flatnonzero(n_chosen != 1)
    if len(wrong):
        k = int(wrong[0])
        others = f" (and {len(wrong) - 1} more sets like it)" if len(wrong) > 1 else ""
        raise ChoiceGPError(
            f"set {data.set_ids[[k]].tolist()[0]!r} has {n_chosen[k]} chosen objects{others}: BatchPreferenceGP learns "
            "from the one best object of each set. Leave such sets out with data.take, or use ChoiceGP, which allows "
            "several"
        )
