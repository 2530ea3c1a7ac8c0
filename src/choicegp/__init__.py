"""Learn choice functions with Gaussian processes.

A person is shown a set of objects and keeps the ones she would not reject.
The model explains her choices by hidden utilities, each a Gaussian process over the objects' features:
she keeps what is Pareto-undominated (Benavoli, Azzimonti and Piga, UAI 2023).

Names are imported on first use, so that ``import choicegp`` and ``choicegp --help`` stay fast.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from choicegp import datasets, kernels, metrics, plots
    from choicegp.data.choices import ChoiceData
    from choicegp.data.folder import ChoiceFolder
    from choicegp.errors import ChoiceDataError, ChoiceGPError
    from choicegp.estimators.batch_preference_gp import BatchPreferenceGP
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.estimators.dimension import select_n_utilities
    from choicegp.estimators.embedding_search import search_embedding
    from choicegp.estimators.leave_one_out import compare
    from choicegp.estimators.pareto_embedding import ParetoEmbedding
    from choicegp.estimators.preference_gp import GeneralPreferenceGP, PairGP, PreferenceGP
    from choicegp.fitting.options import MCMC, Dense, Joint, Paper, Sparse
    from choicegp.model.prior import HyperPriors

# XLA's warnings on standard error are for its developers.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_HOME = {
    "BatchPreferenceGP": "choicegp.estimators.batch_preference_gp",
    "ChoiceData": "choicegp.data.choices",
    "ChoiceDataError": "choicegp.errors",
    "ChoiceFolder": "choicegp.data.folder",
    "ChoiceGP": "choicegp.estimators.choice_gp",
    "ChoiceGPError": "choicegp.errors",
    "GeneralPreferenceGP": "choicegp.estimators.preference_gp",
    "HyperPriors": "choicegp.model.prior",
    "PairGP": "choicegp.estimators.preference_gp",
    "PreferenceGP": "choicegp.estimators.preference_gp",
    "ParetoEmbedding": "choicegp.estimators.pareto_embedding",
    "compare": "choicegp.estimators.leave_one_out",
    "search_embedding": "choicegp.estimators.embedding_search",
    "select_n_utilities": "choicegp.estimators.dimension",
    **dict.fromkeys(("Dense", "Joint", "MCMC", "Paper", "Sparse"), "choicegp.fitting.options"),
}
_MODULES = ("datasets", "kernels", "metrics", "plots")

__all__ = [
    "MCMC",
    "BatchPreferenceGP",
    "ChoiceData",
    "ChoiceDataError",
    "ChoiceFolder",
    "ChoiceGP",
    "ChoiceGPError",
    "Dense",
    "GeneralPreferenceGP",
    "HyperPriors",
    "Joint",
    "PairGP",
    "Paper",
    "ParetoEmbedding",
    "PreferenceGP",
    "Sparse",
    "__version__",
    "compare",
    "datasets",
    "kernels",
    "metrics",
    "plots",
    "search_embedding",
    "select_n_utilities",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"choicegp.{name}")
    raise AttributeError(f"module 'choicegp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
