"""The options of a fit: each is declared and checked once, and the first wrong one is a clear error."""

from typing import Any, NamedTuple

import numpy as np

from choicegp.checks import check_one_of, counted, flag_option, jobs_option, number_option, seed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.fitting.directions import Directions, directed, directions_option
from choicegp.fitting.methods import MCMC, Auto, Dense, Method, Paper, Sparse, method_option
from choicegp.model.error_models import DISCERNIBILITY, RULES, ErrorModel
from choicegp.model.kernels import Kernel
from choicegp.model.own_likelihood import Likelihood
from choicegp.model.prior import HyperPriors, kernel_named

AUTO_DENSE = 1500
"""Shown objects up to which "auto" means dense inference: then it takes about as long as a sparse one."""
_STARTS, MORE_STARTS, _FEW_OBJECTS = 3, 9, 160  # where a start costs little, more are tried
# From three utilities on there are many more optima: on 200 sets of ten of 100 objects, nine starts of dense inference
# ended up to 42 nats below the best of six seeds, sixteen at most 11, and took a fifth more time.  With more objects a
# start takes longer, but is worth it: on 300 noisy sets of five of 250 objects nine starts ended 8 nats above three.
_MOST_STARTS, _MORE_OBJECTS = 16, 400
_FIRST_LAPSE = 0.05
RESPONDENTS = ("pooled", "individual", "hierarchical", "auto")
"""How the answers of several people are related."""


class FitOptions(NamedTuple):
    """The validated options of a fit."""

    n_utilities: int
    method: Method
    kernel: Kernel
    any_kernel: bool
    shared_part: bool | None  # None: the inference decides
    intervals: bool
    object_effects: bool | None  # None: the fit decides
    lapse: float
    learn_lapse: bool
    standardize: bool
    hyperpriors: HyperPriors | None
    learn_hyperparameters: bool
    n_restarts: int | None
    max_seconds: float | None
    tol: float
    n_jobs: int | None
    progress: bool | str
    random_state: int
    drawn_seed: bool = False
    errors: ErrorModel = DISCERNIBILITY
    threshold: bool | None = False  # None: where the data have empty answers
    respondents: str = "pooled"
    directions: Directions = ()

    @classmethod
    def validated(cls, params: dict[str, Any]) -> "FitOptions":
        """Check the parameters of an estimator."""
        method = method_option(params)
        lapse, kernel = params["lapse"], params["kernel"]
        learn = isinstance(lapse, str) and lapse == "learn"
        rate = _FIRST_LAPSE if learn else number_option("lapse", lapse, 0.0, 1.0)
        if rate >= 1.0:
            raise ChoiceGPError("lapse must be below 1: at 1 the choices say nothing")
        if learn and isinstance(method, Paper):
            raise ChoiceGPError(
                "lapse='learn' works with inference='dense', 'sparse' or 'mcmc': give a number with the "
                "paper's approximation"
            )
        any_kernel = isinstance(kernel, str) and kernel == "auto"
        restarts, seconds = params["n_restarts"], params["max_seconds"]
        number = whole_number("n_utilities", params["n_utilities"], 1)
        return cls(
            n_utilities=number,
            method=method,
            kernel=kernel_named("rbf" if any_kernel else kernel),
            any_kernel=any_kernel,
            shared_part=_flag_or_auto("shared_part", params.get("shared_part", False)),
            intervals=_intervals_option(params.get("intervals", "none")),
            object_effects=_flag_or_auto("object_effects", params["object_effects"]),
            lapse=rate,
            learn_lapse=learn,
            standardize=flag_option("standardize", params["standardize"]),
            hyperpriors=hyperpriors_option(params["hyperpriors"]),
            learn_hyperparameters=flag_option("learn_hyperparameters", params["learn_hyperparameters"]),
            n_restarts=None if restarts is None else whole_number("n_restarts", restarts, 1),
            max_seconds=None if seconds is None else number_option("max_seconds", seconds, 0.0, np.inf),
            tol=number_option("tol", params["tol"], 0.0, np.inf),
            n_jobs=jobs_option(params["n_jobs"]),
            progress=params["progress"],
            random_state=seed(params["random_state"]),
            drawn_seed=params["random_state"] is None,
            errors=_rule_option(params.get("rule", "pareto"), number),
            threshold=_flag_or_auto("threshold", params.get("threshold", False)),
            respondents=check_one_of("respondents", params.get("respondents", "pooled"), RESPONDENTS),
            directions=() if params.get("monotone") is None else directions_option(params["monotone"]),
        )

    @property
    def inference(self) -> str:
        """The name of the inference."""
        return self.method.name

    @property
    def first_lapse(self) -> float | None:
        """Lapse rate, or where it starts when it is learned; None where nobody lapses."""
        return self.lapse if self.learn_lapse or self.lapse > 0 else None

    def decided(self, data: ChoiceData | ChoiceFolder) -> "FitOptions":
        """Fill in the inference and the threshold, where they depend on the data."""
        self = self._replace(errors=self._errors_for(data))
        method = self.method
        if self.respondents != "pooled":
            return self._for_people(data)
        if isinstance(data, ChoiceFolder) and not isinstance(method, Auto | Sparse):
            raise ChoiceGPError(
                f"a ChoiceFolder is fitted by inference='sparse', not {method.name!r}: leave it at 'auto', "
                "or fit a sample of the sets (folder.sample)"
            )
        if isinstance(method, Auto):
            few = isinstance(data, ChoiceData) and (bool(self.object_effects) or _n_different(data) <= AUTO_DENSE)
            method = method.decided(few)
            self = self._replace(intervals=self.intervals and few)
        else:
            self = self._replace(intervals=False)
        effects = self.object_effects
        if effects is None and not (method.begins_dense and self.learn_hyperparameters):
            effects = False
        if self.directions and not method.begins_dense:
            raise ChoiceGPError(
                f"monotone does not work with inference={method.name!r}: use inference='dense', or leave monotone out"
            )
        if self.directions and isinstance(data, ChoiceData):
            self = self._replace(kernel=directed(self.kernel, self.directions, data, self.standardize))
        return self._replace(method=method, object_effects=effects)

    def _for_people(self, data: ChoiceData | ChoiceFolder) -> "FitOptions":
        """Return the options of a fit of all people together, which has an inference of its own."""
        if self.directions:
            raise ChoiceGPError(
                f"monotone does not work with respondents={self.respondents!r}: use respondents='pooled', or leave "
                "monotone out"
            )
        is_sampled = isinstance(self.method, MCMC)
        if isinstance(data, ChoiceFolder) or not (is_sampled or isinstance(self.method, Auto | Dense)):
            what = "a ChoiceFolder" if isinstance(data, ChoiceFolder) else f"inference={self.method.name!r}"
            raise ChoiceGPError(
                f"respondents={self.respondents!r} does not work with {what}: use inference='auto' and a ChoiceData, "
                "or respondents='pooled'"
            )
        if is_sampled and self.method != MCMC():
            raise ChoiceGPError("chains of many people have lengths of their own: leave the options of MCMC out")
        method = self.method.decided(True) if isinstance(self.method, Auto) else self.dense
        effects = False if self.object_effects is None and not self.learn_hyperparameters else self.object_effects
        sampled = is_sampled or (self.intervals and isinstance(self.method, Auto))
        return self._replace(method=method, object_effects=effects, intervals=sampled)

    def with_threshold_as_in(self, data: ChoiceData) -> "FitOptions":
        """Return the options with the threshold decided by these data, for fits to parts of them too."""
        return self._replace(threshold=_n_empty(data) > 0) if self.threshold is None else self

    def _errors_for(self, data: ChoiceData | ChoiceFolder) -> ErrorModel:
        """Return how people err, with a threshold where the data or the options ask for one."""
        sets = data.sample if isinstance(data, ChoiceFolder) else data
        n_empty = data.n_empty if isinstance(data, ChoiceFolder) else _n_empty(data)
        if n_empty and self.threshold is False:
            raise ChoiceGPError(
                f"nothing was kept of {counted(n_empty, 'set')}: such answers need a threshold. Use ChoiceGP with "
                "threshold='auto' or True, or leave these sets out (empty='skip')"
            )
        errors = self.errors
        if self.threshold or (self.threshold is None and n_empty):
            errors = errors.with_threshold()
        if isinstance(self.method, Paper) and (errors != DISCERNIBILITY or sets.kinds is not None):
            raise ChoiceGPError(
                "the paper's approximation knows neither thresholds nor other rules and kinds of questions: use "
                "inference='dense' or 'mcmc'"
            )
        return errors

    def as_in(self, has_effects: bool) -> "FitOptions":
        """Return the options with object effects as in another fit, where they are left open."""
        return self._replace(object_effects=has_effects if self.object_effects is None else self.object_effects)

    @property
    def dense(self) -> "Method":
        """The dense inference with which this one begins."""
        return self.method if isinstance(self.method, Dense) else Dense()

    @property
    def plain(self) -> "FitOptions":
        """The options of a first fit: dense, without object effects and intervals."""
        return self._replace(object_effects=False, intervals=False, method=self.dense)

    def hyperpriors_for(self, n_features: int) -> HyperPriors | None:
        """Return the hyperpriors for that number of features."""
        return None if self.hyperpriors is None else self.hyperpriors.for_features(max(1, n_features))

    @property
    def has_shared_part(self) -> bool:
        """Whether the utilities of this fit have a shared part: one utility has nobody to share with."""
        # Sparse fits with one have ended in much worse optima (docs/scale.md): there it is made when it is asked for.
        wanted = self.method.begins_dense if self.shared_part is None else self.shared_part
        return wanted and self.n_utilities > 1 and not isinstance(self.method, Paper)

    def n_starts(self, n_objects: int) -> int:
        """Return how many starts are tried for that number of shown objects."""
        if self.n_restarts is not None:
            return self.n_restarts
        is_hard = self.n_utilities >= 3 and self.method.begins_dense
        if n_objects > _FEW_OBJECTS:
            return MORE_STARTS if is_hard and n_objects <= _MORE_OBJECTS else _STARTS
        return _MOST_STARTS if is_hard else MORE_STARTS


def _n_different(data: ChoiceData) -> int:
    """Count the shown objects that differ in their features, as far as it takes to choose the inference."""
    shown = np.unique(data.flat_shown)
    return len(shown) if len(shown) <= AUTO_DENSE else len(np.unique(data.X[shown], axis=0))


def _n_empty(data: ChoiceData) -> int:
    """Count the sets of which nothing was kept; refuse them where one object had to be marked."""
    if data.flat_chosen is None or len(data) == 0:
        return 0
    empty = np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int) == 0
    if data.kinds is not None and np.any(empty & (data.kinds != "keep")):
        k = int(np.argmax(empty & (data.kinds != "keep")))
        raise ChoiceGPError(
            f"set {data.set_ids[[k]].tolist()[0]!r} asks for the {data.kinds[k]} object, and none is marked: the "
            "answer \"none of these\" belongs to sets of the kind 'keep'. Leave such sets out (empty='skip')"
        )
    return int(empty.sum())


def _rule_option(value: Any, n_utilities: int) -> ErrorModel:
    if isinstance(value, Likelihood):
        value.check_differences(n_utilities)
        return value
    if not isinstance(value, str) or value not in RULES:
        raise ChoiceGPError(f"rule must be one of {', '.join(RULES)}, or a Likelihood; got {value!r}")
    return RULES[value]


def _flag_or_auto(name: str, value: Any) -> bool | None:
    if isinstance(value, str):
        if value != "auto":
            raise ChoiceGPError(f"{name} must be True, False or 'auto'; got {value!r}")
        return None
    return flag_option(name, value)


def _intervals_option(value: Any) -> bool:
    if not isinstance(value, str) or value not in ("auto", "none"):
        raise ChoiceGPError(f"intervals must be 'auto' or 'none'; got {value!r}")
    return value == "auto"


def hyperpriors_option(value: Any) -> HyperPriors | None:
    """Check hyperpriors: pairs of a mean and a standard deviation."""
    if value is None:
        return None
    if not isinstance(value, HyperPriors):
        raise ChoiceGPError(f"hyperpriors must be a HyperPriors or None; got {value!r}")
    for name, pair in value._asdict().items():
        try:
            mean, sd = map(float, pair)
        except (TypeError, ValueError):
            mean, sd = np.nan, np.nan
        if not (np.isfinite(mean) and 0.0 < sd < np.inf):
            raise ChoiceGPError(f"hyperpriors: {name} must be a mean and a standard deviation above 0; got {pair!r}")
    return HyperPriors(*((float(mean), float(sd)) for mean, sd in value))
