"""Records of a fit as arrays and a JSON page, and back: the states of inferences, posteriors, scores.

A page names the classes, which must be among `RECORDS`; nothing else is made of it.  Kernels may be a user's own: they
are not named, and read into the structure of the kernel that the fit has.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import FitResult
from choicegp.inference.annealing import Course, StepTrace
from choicegp.inference.chain import Chain, SampledBlock
from choicegp.inference.dense import Adam, DenseState
from choicegp.inference.descent import Descent
from choicegp.inference.mcmc import MCMCState
from choicegp.inference.paper import PaperCourse, PaperState, Parameters
from choicegp.inference.posterior import Draws, Factor, Posterior
from choicegp.inference.reduced import ReducedState
from choicegp.inference.respondents.steps import StudySites, StudyState
from choicegp.inference.sites import Sites
from choicegp.inference.sparse.plan import SparseCourse
from choicegp.inference.sparse.step import SparseState
from choicegp.inference.sparse.stopping import LastGain, Scored
from choicegp.model.kernels import Kernel
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior
from choicegp.selection.loo import CavityDiagnostics, LooResult

RECORDS: dict[str, Any] = {
    f"{kind.__module__.removeprefix('choicegp.')}.{kind.__name__}": kind
    for kind in (
        Adam, CavityDiagnostics, Chain, Course, DenseState, Descent, Draws, Factor, FitResult, LooResult, MCMCState,
        Objects, PaperCourse, PaperState, Parameters, Posterior, LastGain, ReducedState, SampledBlock, Scored, Sites,
        SparseCourse, SparseState, StepTrace, StudyPrior, StudySites, StudyState, UtilityPrior,
    )
}  # fmt: skip
_NAMES = {kind: name for name, kind in RECORDS.items()}


class Packed(NamedTuple):
    """What was read and not made into records yet: a page, and the arrays that it names."""

    page: Any
    arrays: dict[str, np.ndarray]


def packed(known: Any, name: str) -> Packed:
    """Turn records into a page and arrays whose names begin with ``name``.

    Examples
    --------
    >>> found = packed(Scored(-1.5, np.zeros(2)), "last")
    >>> found.page
    {'record': 'inference.sparse.stopping.Scored', 'values': [-1.5, {'array': 'last:0'}]}
    >>> unpacked(found, None).score
    -1.5
    """
    if isinstance(known, Packed):
        return known
    arrays: dict[str, np.ndarray] = {}
    return Packed(_page(known, name, arrays), arrays)


def _page(known: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    def inner(values: Any) -> list[Any]:
        return [_page(value, name, arrays) for value in values]

    if isinstance(known, np.float64 | np.int64 | np.bool_):
        known = known.item()
    if known is None or isinstance(known, bool | int | float | str):
        return known
    if isinstance(known, np.ndarray | np.generic | jax.Array):
        place = f"{name}:{len(arrays)}"
        arrays[place] = np.asarray(known)
        return {"array": place}
    if isinstance(known, Kernel):
        return {"kernel": inner(map(np.asarray, jax.tree.leaves(known)))}
    kind = _NAMES.get(type(known))
    if kind is not None:
        return {"record": kind, "values": inner(_values(known))}
    if type(known) is tuple:
        return {"tuple": inner(known)}
    raise ChoiceGPError(f"a {type(known).__name__} cannot be kept in a file")


def _values(record: Any) -> list[Any]:
    if isinstance(record, eqx.Module):
        return [getattr(record, field.name) for field in fields(record)]
    return list(record)


def unpacked(found: Packed, kernel: Any) -> Any:
    """Make the records of a page; kernels have the structure of ``kernel``."""

    def made(page: Any) -> Any:
        if not isinstance(page, dict):
            return page
        [what, *_] = page
        makers: dict[str, Callable[[], Any]] = {
            "array": lambda: found.arrays[page["array"]],
            "kernel": lambda: jax.tree.unflatten(jax.tree.structure(kernel), map(made, page["kernel"])),
            "record": lambda: RECORDS[page["record"]](*map(made, page["values"])),
            "tuple": lambda: tuple(map(made, page["tuple"])),
        }
        return makers[what]()

    return made(found.page)
