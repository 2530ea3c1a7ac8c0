"""What a fit gives: one immutable record; how data are posed; and what a careful reader may want to know."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from choicegp.checks import counted
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.data.packing import FeatureScaling
from choicegp.data.pareto import expected_undominated
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem, pose
from choicegp.inference.respondents.posterior import StudyPosterior
from choicegp.model.error_models import DISCERNIBILITY, BestInOne, ErrorModel
from choicegp.model.prior import THRESHOLD, Objects
from choicegp.reading.encoding import FeatureEncoding

if TYPE_CHECKING:
    import pandas as pd

PLUG_IN = "Gaussian utilities at the most probable hyperparameters: intervals are too narrow"
_MOST_OBJECTS = 400
_CLEAR = 1.0  # difference, in units of the error scale, from which on an order means something
_LARGE = 10  # objects of a set in which far more are kept than nothing dominates
_TOLERATED = 0.02  # share of clear pairs that may be ordered oppositely


class FitResult(NamedTuple):
    """How a fit went.

    Attributes
    ----------
    status : str
        "converged", "stopped" (at a limit of steps or time) or "failed".
    message : str
        Why, in words.
    n_iter : int
        Steps made by the start that continued.
    seconds : float
    elbo_trace : ndarray (n_iter,)
        Evidence lower bound at each step, on the fit's own sample points; while annealing, of the tempered
        likelihood.
    notes : tuple of str
        What was done on the way that a careful reader may want to know.
    n_annealing : int
        How many of the first steps were annealing.
    intervals : str
        What made the intervals, in words.
    out_of_time : bool
        Whether the time limit had passed when the fit stopped, before it converged.

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> model.fit_result_.status
    'converged'
    """

    status: str
    message: str
    n_iter: int
    seconds: float
    elbo_trace: np.ndarray
    notes: tuple[str, ...] = ()
    n_annealing: int = 0
    intervals: str = ""
    out_of_time: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the result, less its trace, as a JSON object."""
        return self._asdict() | {"elbo_trace": None}

    @classmethod
    def from_json(cls, written: dict[str, Any], trace: np.ndarray) -> "FitResult":
        """Return the result that `to_json` has ``written``, with its trace."""
        return cls(**written | {"elbo_trace": trace, "notes": tuple(written["notes"])})

    def __repr__(self) -> str:
        notes = f"; {counted(len(self.notes), 'note')}" if self.notes else ""
        return f"FitResult({self.status}: {self.message}; {self.n_iter} steps in {self.seconds:.1f} s{notes})"


class Utilities(NamedTuple):
    """Posterior of the utilities at some objects.

    Choices do not say where a utility is zero: values of `ChoiceGP` and `BatchPreferenceGP` are contrasts to the mean
    of the objects that were shown.

    Attributes
    ----------
    mean, sd : ndarray (n, d)
    lower, upper : ndarray (n, d)
        Ends of the 95% interval; None where a model has none.

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> found = model.utilities([[0.0], [2.0]])
    >>> found.mean.shape, bool(found.mean[0, 0] < found.mean[1, 0])
    ((2, 1), True)
    """

    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    def __repr__(self) -> str:
        mean, sd = np.atleast_2d(self.mean), np.atleast_2d(self.sd)
        sizes = f"{counted(len(mean), 'object')}, {counted(mean.shape[1], 'utility', many='utilities')}"
        if not mean.size:
            return f"Utilities({sizes})"
        spread = "" if np.isnan(sd).all() else f", standard deviations from {np.nanmin(sd):.3g} to {np.nanmax(sd):.3g}"
        return f"Utilities({sizes}: means from {mean.min():.3g} to {mean.max():.3g}{spread})"


class ChosenNumber(NamedTuple):
    """How the number of utilities was chosen, as a model's file keeps it.

    Attributes
    ----------
    n_utilities : int
    reason : str
        Why this number, in words.
    scores : dict of str to list
        The columns of the comparison, one entry for each number that was tried.
    """

    n_utilities: int
    reason: str
    scores: dict[str, list[Any]]

    @property
    def table(self) -> "pd.DataFrame":
        """The comparison, indexed by the number of utilities."""
        import pandas as pd

        return pd.DataFrame(self.scores).set_index("n_utilities")


class Fitted(NamedTuple):
    """All that a fit has learned.

    Attributes
    ----------
    posterior : Posterior
    elbo : float
        Evidence lower bound, scored on fresh points, without hyperpriors.
    result : FitResult
    centre, scale : ndarray (c,)
        How features were scaled.
    codes : dict
        A number for every object id of the training data.
    errors : ErrorModel
    data : ChoiceData
        The training data; of a folder, a sample of its sets.
    study : StudyPosterior or None
        What is known about each person, where people were fitted together; ``posterior`` is the population's then.
    chosen : ChosenNumber or None
        How the number of utilities was chosen, where it was.
    """

    posterior: Posterior
    elbo: float
    result: FitResult
    centre: np.ndarray
    scale: np.ndarray
    codes: dict[Any, int]
    errors: ErrorModel
    data: ChoiceData
    study: StudyPosterior | None = None
    chosen: ChosenNumber | None = None

    def __repr__(self) -> str:
        return f"Fitted({counted(self.n_utilities, 'utility', many='utilities')}, {self.data!r}, {self.result!r})"

    def noted(self, note: str) -> "Fitted":
        """Return the same fit with a further note."""
        return self._replace(result=self.result._replace(notes=(*self.result.notes, note)))

    @property
    def encoding(self) -> FeatureEncoding:
        """How features become numbers."""
        return self.data.encoding

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.posterior.n_utilities

    @property
    def n_shown(self) -> int:
        """Number of shown objects of a dense posterior, the first ones; the threshold comes after them."""
        codes = np.asarray(self.posterior.objects.codes)
        return int(np.argmin(np.append(codes, THRESHOLD) >= 0))

    @property
    def has_effects(self) -> bool:
        """Whether every object has an effect of its own."""
        return self.posterior.prior.log_effect_variance is not None

    def objects(self, X: Any, known: dict[Any, int] | None = None) -> Objects:
        """Encode and scale objects as the training data were; ids not seen in training get new codes.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c), or ChoiceData
            A row of an array is always a new object.
        known : dict, optional
            Codes of ids, to which new ones are added; by default the codes of the training data.
        """
        encoded = encoded_features(X, self.encoding)
        named = isinstance(X, ChoiceData) or hasattr(X, "columns")
        ids = object_ids(X) if named else [object() for _ in encoded]
        if self.has_effects and ids == list(range(len(ids))):
            # Row numbers are no names: row 0 of another table is the same object only with the same features.
            trained = {i: row for row, i in enumerate(self.data.object_ids)}
            ids = [
                object() if i in trained and not np.array_equal(row, self.data.X[trained[i]]) else i
                for i, row in zip(ids, encoded, strict=True)
            ]
        known = dict(self.codes) if known is None else known
        codes = [known.setdefault(i, len(known)) for i in ids]
        return Objects((encoded - self.centre) / self.scale, np.array(codes))

    def training_problem(self) -> Problem:
        """Return the problem that was fitted; its objects are in the posterior's order."""
        return posed(
            self.data, self.centre, self.scale, dict(self.codes), effects=self.has_effects, errors=self.errors,
            directions=self.posterior.prior.kernels.directions(),
        )  # fmt: skip

    def problem_by_row(self) -> Problem:
        """Pose the training data with every row of their table an object of its own, whose code is its row."""
        return pose(self.data, self.data.X, np.arange(len(self.data.X)), effects=True, errors=self.errors)


def encoded_features(X: Any, encoding: FeatureEncoding) -> np.ndarray:
    """Encode objects, given as a table of features, an encoded array (n, c) or choice data."""
    return X.with_encoding(encoding).X if isinstance(X, ChoiceData) else encoding.encode(X)


def object_ids(X: Any) -> list[Any]:
    """Return the ids of objects: ``object_ids`` of choice data, the index of a table, or row numbers."""
    if isinstance(X, ChoiceData):
        return list(X.object_ids)
    return list(X.index) if hasattr(X, "index") and hasattr(X, "columns") else list(range(len(X)))


def scaling(data: ChoiceData | ChoiceFolder, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the shown objects' features; a constant feature is left unscaled."""
    if not standardize:
        n_features = len(data.encoding.feature_names)
        return np.zeros(n_features), np.ones(n_features)
    shown = data.moments if isinstance(data, ChoiceFolder) else FeatureScaling.of(data.X[np.unique(data.flat_shown)])
    return shown.mean, shown.scale


def posed(
    data: ChoiceData, centre: np.ndarray, scale: np.ndarray, codes: dict[Any, int], *, effects: bool,
    errors: ErrorModel = DISCERNIBILITY, directions: dict[int, float] | None = None,
) -> Problem:  # fmt: skip
    """Pose choice data, scaled; ids that ``codes`` does not know are added to it."""
    numbers = np.array([codes.setdefault(i, len(codes)) for i in data.object_ids])
    return pose(data, (data.X - centre) / scale, numbers, effects=effects, errors=errors, directions=directions)


def coinciding_utilities(mean: np.ndarray) -> list[tuple[int, ...]]:
    """Group the utilities, given as posterior means (d, t) in units of the error scale, by how they order objects.

    Two coincide when they order all pairs of objects in the same way, but for a few: those pairs count that differ
    clearly, by more than the error of a comparison, in one of the two.  An object that one of two such
    utilities prefers the other prefers too, so that both together say what one would.

    Examples
    --------
    >>> u = np.array([[0.0, 3.0, 6.0], [6.0, 2.0, 0.0], [1.0, 9.0, 30.0]])
    >>> coinciding_utilities(u)
    [(0, 2), (1,)]
    """
    d, t = mean.shape
    some = mean[:, np.linspace(0, t - 1, min(t, _MOST_OBJECTS)).astype(int)]
    first, second = np.triu_indices(some.shape[1], 1)
    difference = some[:, first] - some[:, second]
    clear = np.abs(difference) > _CLEAR
    groups: list[list[int]] = []
    for i in range(d):
        for group in groups:
            j = group[0]
            either = clear[i] | clear[j]
            opposite = np.sign(difference[i]) * np.sign(difference[j]) <= 0
            both = bool(clear[i].any() and clear[j].any())
            if both and np.mean(opposite[either]) <= _TOLERATED:
                group.append(i)
                break
        else:
            groups.append([i])
    return [tuple(group) for group in groups]


def drawn_seed_note(random_state: int) -> str:
    """Say which seed was drawn for ``random_state=None``."""
    return f"the seed was drawn: random_state={random_state} repeats this fit"


def one_utility_note(data: ChoiceData, n_utilities: int, consequence: str = "") -> tuple[str, ...]:
    """Say that one utility cannot explain answers of several objects, what follows from that, and what to do.

    Examples
    --------
    >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1], [0, 1]], [[0, 1], [0]])
    >>> one_utility_note(data, 1)[0][:70]
    'with one utility no two objects can be chosen together, as they were i'
    """
    if n_utilities > 1 or data.flat_chosen is None or len(data) == 0:
        return ()
    n_several = int(np.sum(np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int) > 1))
    if not n_several:
        return ()
    return (
        f"with one utility no two objects can be chosen together, as they were in {n_several} of "
        f'{counted(len(data), "set")}{consequence}; use n_utilities=2 or "auto" (choicegp fit -d 2, or choicegp '
        "select); if the question was for the one best object, leave these sets out and use BatchPreferenceGP",
    )


def excess_note(data: ChoiceData, errors: ErrorModel, n_utilities: int) -> tuple[str, ...]:
    """Say that more was kept than a model with so few utilities can keep, or can expect to keep of new objects."""
    if n_utilities == 1 or data.flat_chosen is None or len(data) == 0:
        return ()
    n_kept = np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int)
    if errors.name.startswith(DISCERNIBILITY.name):
        large = np.diff(data.offsets) >= _LARGE
        if not large.any():
            return ()
        n = int(np.median(np.diff(data.offsets)[large]))
        expected = expected_undominated(n, n_utilities)
        if n_kept[large].mean() < 2.0 * expected:
            return ()
        return (
            f"{n_kept[large].mean():.1f} objects were kept of large sets, but of {n} new ones {n_utilities} utilities "
            f"leave about {expected:.1f} undominated: new objects will seldom be predicted to be kept. If objects "
            "do not compete, ask for each by itself (ChoiceData.from_yes_no); or use more utilities",
        )
    if not isinstance(errors, BestInOne):
        return ()
    n_several = int(np.sum(n_kept > n_utilities))
    if not n_several:
        return ()
    return (
        f"with the rule 'best-in-one' and {n_utilities} utilities at most {n_utilities} objects can be kept, and more "
        f"were kept of {n_several} of {counted(len(data), 'set')}; use more utilities, or rule='pareto'",
    )


def coinciding_notes(mean: np.ndarray) -> tuple[str, ...]:
    """Say in words which utilities order all objects in the same way.

    Examples
    --------
    >>> coinciding_notes(np.array([[0.0, 3.0, 6.0], [1.0, 9.0, 30.0]]))
    ('utilities 1 and 2 order all objects in the same way: they count as one',)
    """
    notes = []
    for group in coinciding_utilities(mean):
        if len(group) > 1:
            names = [str(i + 1) for i in group]
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            notes.append(f"utilities {listed} order all objects in the same way: they count as one")
    return tuple(notes)


def notes_on(
    data: ChoiceData | ChoiceFolder, X: np.ndarray, utilities: np.ndarray, problem: Problem | None = None
) -> tuple[str, ...]:
    """Say what is odd about data whose shown objects have features ``X``, and about posterior means (d, t).

    ``problem`` is given where all sets and objects are in one.
    """
    notes = []
    if isinstance(data, ChoiceFolder):
        notes.append(f"{len(data)} sets in {len(data.files)} files; data_ is a sample of {len(data.sample)} of them")
    elif problem is not None:
        merged = len(np.unique(data.flat_shown)) - int(np.sum(problem.valid & (problem.objects.codes >= 0)))
        if merged > 0:
            notes.append(f"{merged} objects equal to another in all features were merged with it")
    constant = np.ptp(X, axis=0) == 0
    if constant.any():
        names = ", ".join(np.asarray(data.encoding.feature_names)[constant])
        notes.append(f"these features are the same for all shown objects and say nothing: {names}")
    if problem is not None and problem.n_sets < len(data):
        notes.append(f"{len(data) - problem.n_sets} sets of one object say nothing")
    sets = data.sample if isinstance(data, ChoiceFolder) else data
    return (*notes, *one_utility_note(sets, len(utilities)), *coinciding_notes(utilities))
