"""ChoiceGP: learn a choice function from choices, and predict others."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from choicegp.compute.devices import computing
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import check_training_data
from choicegp.estimators.market import MarketNumbers
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.methods import Method
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted, Utilities
from choicegp.inference.driver import NOTHING, Keeper
from choicegp.model.kernels import Kernel
from choicegp.model.own_likelihood import Likelihood
from choicegp.model.prior import HyperPriors, threshold_like
from choicegp.prediction.contrasts import contrasts
from choicegp.prediction.kinds import choice_predictor
from choicegp.prediction.utilities import dominance_probabilities

if TYPE_CHECKING:
    import os

    from choicegp.selection.n_utilities import SelectionResult


@dataclass(eq=False, repr=False)
class ChoiceGP(MarketNumbers):
    """Choice functions with Gaussian processes (Benavoli, Azzimonti and Piga, UAI 2023).

    There are ``n_utilities`` hidden utilities, each a Gaussian process over the features; of a set, the
    objects that no other dominates in all utilities are chosen, with probit errors.  Of sets of the kinds "best" and
    "worst" (``ChoiceData.kinds``) one object is marked, by the same utilities.

    Parameters
    ----------
    n_utilities : int or "auto"
        Number of hidden utilities; "auto": chosen by `select_n_utilities` (at most 5).
    inference : str, or Dense, Sparse, Paper or MCMC
        "dense": block sites by natural gradient, exact for up to a few thousand shown objects; "sparse": the same at
        inducing points and by mini-batches, for any number of objects and sets; "auto": "dense" for up to 1500
        different objects, else "sparse" (``fit_result_.notes`` says so); "paper": the authors' own approximation;
        "paper-converged": the same family with a good optimiser; "mcmc": draws of utilities and
        hyperparameters from the exact posterior, after a "dense" fit.  A record such as ``Sparse(n_inducing=512)``
        names an inference together with its options; a name means its record with default values.
    kernel : str or Kernel
        "auto": "rbf", and with sparse inference waves in single features beside it, on learned scales of the features;
        "rbf", "matern12", "matern32", "matern52", "linear", "periodic", "additive", or a composition of kernels from
        `choicegp.kernels`.
    threshold : bool or "auto"
        Whether objects must also pass a threshold to be kept, so that a set may be left empty and a set of one object
        is a question of yes or no; its utilities are learned.  "auto": where the data have empty answers.  The
        paper's approximation has none.
    rule : {"pareto", "best-in-one"} or Likelihood
        Which objects are kept: those that no other dominates, or those that are the best in at least one utility; or a
        likelihood of one's own, see `choicegp.likelihoods`.  The paper's approximation knows the first only.  `compare`
        chooses between two models of the same choices.
    respondents : {"pooled", "individual", "hierarchical", "auto"}
        How the answers of several people (``ChoiceData.respondents``) are related.  "pooled": as if they were one
        person's.  "individual": people have nothing in common but the hyperparameters.  "hierarchical": each person's
        utilities vary around the population's, and how much is learned; predictions are then made for the person whom
        each set names, and for a new person of the population where it names nobody who is known, and utilities,
        effects and recommendations are the population's.  "auto": by cross-validation over the sets of each person;
        ``fit_result_.notes`` says why.
    monotone : dict of str to int, optional
        Numeric features with which every utility may only rise (1) or fall (-1), such as ``{"price": -1}``.  Such a
        feature has a part of its own in each utility, so that it matters in the same way whatever the other features
        are; where the answers speak against it, ``fit_result_.notes`` says so.  For dense inference and one person.
    shared_part : bool or "auto"
        Whether the utilities have a part in common, whose size is learned: what people judge by is related, and with
        independent utilities most objects that were never shown would be incomparable.  "auto": with dense inference
        and "mcmc"; with "sparse" only True gives one, and the paper's approximation never has one.
    intervals : {"auto", "none"}
        "auto", with ``inference="auto"`` and few objects: after the dense fit, utilities and hyperparameters are
        sampled (up to 1500 utilities of shown objects), or the Gaussian posterior is mixed over settings of the
        hyperparameters (beyond); small studies of many people are sampled too; ``intervals_`` says which.  "none", for
        speed: intervals at the most probable hyperparameters, which are too narrow.
    object_effects : bool or "auto"
        Whether each object id has, beside its features, an effect of its own; "auto", with dense inference: unless the
        evidence is clearly against it.
    lapse : float or "learn"
        Probability that an answer is a random subset.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    hyperpriors : HyperPriors or None
        Weak priors on the logs of lengthscales, variances and so on; None for none.
    learn_hyperparameters : bool
        Whether the kernel's parameters are learned; if not, they stay as ``kernel`` has them.
    n_restarts : int, optional
        Number of annealed starts; the best continues. By default 3, or for at most 160 shown objects 9 (16 for three
        or more utilities, with dense inference); "sparse": how many of its own starts are tried, by default all.
    max_iter : int, optional
        Maximum number of steps of the inference.  What a step is, and how many there are by default: an update of all
        sites and of the hyperparameters, 300 ("dense"); an update from a mini-batch, 4000 ("sparse"); a step of Adam,
        5000 ("paper"); an iteration of L-BFGS, 1000 ("paper-converged"); a kept draw of each of four chains
        after the dense fit, 1000 ("mcmc").  Belongs into the record where ``inference`` is one.
    max_seconds : float, optional
        Time limit of everything that the fit does: the search of ``n_utilities="auto"``, object effects and intervals
        included.  What was reached by then is kept, and ``fit_result_.notes`` and ``selection_.reason`` say what was
        not done.  Steps that have begun are finished.
    tol : float
        The fit has converged when a few steps gain less than this many nats ("sparse": than this part of the score on
        held-out sets, and than two standard errors of the gain).
    n_inducing, batch_size : int, optional
        As in `Sparse`.
    learn_inducing : bool
        As in `Sparse`.
    device : {"auto", "cpu", "gpu"}
        With "auto", an accelerator where there is one, and the CPU for chains, which are slow on accelerators.
    n_jobs : int, optional
        Number of threads, in which starts run in parallel; -1 for all cores.  By default all cores for up to 1000
        shown objects, and one thread for more.  The result does not depend on it.
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    random_state : int or None
        Seed; the same seed gives the same result.  None draws one, which ``fit_result_.notes`` names.

    Attributes
    ----------
    n_utilities_ : int
    selection_ : SelectionResult
        How the number was chosen, with ``n_utilities="auto"``.
    elbo_ : float
        Evidence lower bound, scored on fresh points, without hyperpriors.
    fit_result_ : FitResult
        Status, message, number of steps, seconds and the trace of the bound.
    posterior_ : Posterior
    errors_ : ErrorModel
    data_ : ChoiceData
        The training data.
    encoding_ : FeatureEncoding

    Examples
    --------
    >>> from choicegp import ChoiceGP, datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=34).data
    >>> train, test = data.split(10, random_state=0)
    >>> model = ChoiceGP(n_utilities=2, intervals="none", n_restarts=1, max_iter=40).fit(train)
    >>> len(model.predict(test)) == len(test)
    True
    """

    _format = "choicegp-model"
    _predictor = staticmethod(choice_predictor)
    selection_: "SelectionResult" = field(init=False)
    n_utilities: int | str = 2
    _: KW_ONLY
    inference: str | Method = "auto"
    kernel: str | Kernel = "auto"
    threshold: bool | str = "auto"
    rule: str | Likelihood = "pareto"
    respondents: str = "pooled"
    monotone: dict[str, int] | None = None
    shared_part: bool | str = "auto"
    intervals: str = "auto"
    object_effects: bool | str = "auto"
    lapse: float | str = 0.0
    standardize: bool = True
    hyperpriors: HyperPriors | None = HyperPriors()  # noqa: RUF009 - immutable
    learn_hyperparameters: bool = True
    n_restarts: int | None = None
    max_iter: int | None = None
    max_seconds: float | None = None
    tol: float = 0.02
    n_inducing: int | None = None
    batch_size: int | None = None
    learn_inducing: bool = False
    device: str = "auto"
    n_jobs: int | None = None
    progress: bool | str = "auto"
    random_state: int | None = 0

    def fit(
        self,
        data: ChoiceData | ChoiceFolder,
        y: None = None,
        *,
        init: "ChoiceGP | None" = None,
        checkpoint: "str | os.PathLike[str] | None" = None,
    ) -> Self:
        """Learn utilities and hyperparameters from choices.

        Parameters
        ----------
        data : ChoiceData or ChoiceFolder
            With choices. A folder is fitted by sparse inference, and ``data_`` is then a sample of its sets.
        y : None
            Ignored; scikit-learn passes it.
        init : ChoiceGP, optional
            An earlier model to start from, when sets have arrived since: no annealing, few steps.
        checkpoint : path, optional
            A file in which the fit keeps what it knows so far; a fit that was interrupted or killed continues from
            there, to the same result (with ``max_seconds``, which then start again, to a similar one).  It is removed
            when the fit is done.

        Returns
        -------
        ChoiceGP
            Itself.
        """
        if isinstance(data, ChoiceFolder):
            return self._fit_folder(data, init, checkpoint)
        check_training_data(data, "fit")
        self.__dict__.pop("selection_", None)
        if isinstance(self.n_utilities, str) and self.n_utilities == "auto":
            from choicegp.estimators.n_utilities import fit_auto

            return fit_auto(self, data, init, checkpoint)
        options = FitOptions.validated(self.get_params(deep=False))
        if init is not None:
            if not isinstance(init, ChoiceGP) or not init.__sklearn_is_fitted__():
                raise ChoiceGPError(f"init must be a ChoiceGP that is fitted already; got {init!r}")
            data = data.with_encoding(init.encoding_)
        clock, note, warm = Clock(self.max_seconds), "", None if init is None else init.fitted_
        with computing(self.device), checkpoint_of(checkpoint, data, options, warm) as keeper:
            if options.respondents == "auto":
                from choicegp.selection.respondents import choose_people

                chosen = choose_people(data, options, clock)
                options, note = options._replace(respondents=chosen.chosen), f"respondents: {chosen.reason}"
            fitted = fit_posterior(data, options, warm, keeper=keeper, clock=clock)
        return self._keep(fitted.noted(note) if note else fitted)

    def adapt(self, data: ChoiceData) -> Self:
        """Return a model that has also learned further answers of people, known or new, in a fraction of a second.

        Each person of the data is learned given the population, nobody else is fitted again, and the hyperparameters
        stay.  This model is left as it is.

        Parameters
        ----------
        data : ChoiceData
            With choices and respondents.

        Returns
        -------
        ChoiceGP

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> pairs = [[0, 1], [1, 2], [0, 2]]
        >>> data = ChoiceData.from_sets([[0.0], [1.0], [2.0]], pairs * 2, [[1], [2], [2]] * 2, respondents=[*"aaabbb"])
        >>> model = ChoiceGP(1, respondents="hierarchical", intervals="none", n_restarts=1, max_iter=30).fit(data)
        >>> model.adapt(ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]], [[0]], respondents=["c"])).respondents_
        ('a', 'b', 'c')
        """
        from choicegp.fitting.adapting import adapted

        self._checked(data)
        check_training_data(data, "adapt")
        if self.fitted_.study is None:
            raise ChoiceGPError("adapt works with models of many people: use ChoiceGP(respondents='hierarchical')")
        options = FitOptions.validated(self.get_params(deep=False) | {"n_utilities": self.n_utilities_})
        options = options._replace(
            errors=self.errors_, object_effects=self.fitted_.has_effects, threshold=self.errors_.has_threshold
        )
        options.decided(data)  # refuses empty answers where there is no threshold
        with computing(self.device):
            fitted = adapted(self.fitted_, data.with_encoding(self.encoding_), options, Clock(self.max_seconds))
        return type(self)(**self.get_params(deep=False))._keep(fitted)

    @property
    def respondents_(self) -> tuple:
        """The people whose answers were learned, each in her own right; empty where all were pooled."""
        return () if self.fitted_.study is None else self.fitted_.study.ids

    def _fit_folder(self, folder: ChoiceFolder, init: "ChoiceGP | None", checkpoint: Any) -> Self:
        if init is not None:
            raise ChoiceGPError("init= does not work with a ChoiceFolder: leave it out")
        if isinstance(self.n_utilities, str):
            raise ChoiceGPError(
                f"n_utilities={self.n_utilities!r} does not work with a ChoiceFolder: give a number, such as the one "
                "that select_n_utilities finds for some sets of folder.sample"
            )
        options = FitOptions.validated(self.get_params(deep=False))
        self.__dict__.pop("selection_", None)
        with computing(self.device), checkpoint_of(checkpoint, folder, options) as keeper:
            return self._keep(fit_posterior(folder, options, None, keeper=keeper))

    def predict_none(self, data: ChoiceData) -> np.ndarray:
        """Return the probability that nothing is kept of each set.

        Parameters
        ----------
        data : ChoiceData
            It needs no choices.

        Returns
        -------
        ndarray (m,)
            Zeros without a threshold.

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_sets([[0.0], [1.0], [2.0]], [[0], [1], [2]], [[], [1], [2]], empty="none")
        >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
        >>> [p > 0.3 for p in model.predict_none(data).tolist()]
        [True, False, False]
        """
        self._checked(data)
        with computing(self.device):
            return choice_predictor(self.fitted_, data).none()

    def threshold_utilities(self) -> Utilities:
        """Return where the threshold lies, as a contrast to the mean of the shown objects.

        Returns
        -------
        Utilities
            Each part has shape (d,).
        """
        self._check_fitted()
        self._check_population()
        if not self.errors_.has_threshold:
            raise ChoiceGPError("this model has no threshold: use ChoiceGP(threshold=True)")
        with computing(self.device):
            found = contrasts(self.posterior_, threshold_like(self.posterior_.objects), self._shown())
        return Utilities(*(np.asarray(part)[0] for part in found))

    def dominance_proba(self, X1: Any, X2: Any) -> np.ndarray:
        """Return which of two objects is better in all utilities, for each pair of rows.

        Parameters
        ----------
        X1, X2 : DataFrame of features or encoded array (n, c)

        Returns
        -------
        ndarray (n, 3)
            P(first dominates), P(second dominates) and P(incomparable), without errors of answers.
        """
        self._check_fitted()
        self._check_population()
        # One table of ids for both: two objects that training did not see must not share an effect.
        known = dict(self.fitted_.codes)
        with computing(self.device):
            found = dominance_probabilities(
                self.posterior_, self.fitted_.objects(X1, known), self.fitted_.objects(X2, known)
            )
        self._warn_outside(X1, X2)
        return found


def checkpoint_of(
    path: Any, data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None = None
) -> AbstractContextManager[Keeper]:
    """Return the checkpoint of a fit at a path; without one, or as a part of other work, what is given or nothing."""
    if path is None or hasattr(path, "recall"):
        return nullcontext(NOTHING if path is None else path)
    from choicegp.storage.checkpoints import checkpointed, identity

    return checkpointed(path, identity(data, options, warm))
