"""Learn choice functions with Gaussian processes.

A person is shown a set of objects and keeps the ones she would not reject.
The model explains her choices by hidden utilities, each a Gaussian process over the objects' features:
she keeps what is Pareto-undominated (Benavoli, Azzimonti and Piga, UAI 2023).

Names are imported on first use, so that ``import choicegp`` and ``choicegp --help`` stay fast.
"""

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from choicegp import datasets, inferences, kernels, likelihoods, metrics, plots
    from choicegp.data.choices import ChoiceData
    from choicegp.data.folder import ChoiceFolder
    from choicegp.data.preferences import Preferences, preferences
    from choicegp.elicitation.between import next_set_between
    from choicegp.elicitation.design import next_set, next_sets
    from choicegp.elicitation.request import Proposed
    from choicegp.elicitation.session import ChoiceSession
    from choicegp.elicitation.stopping import Hint
    from choicegp.elicitation.store import Store
    from choicegp.errors import (
        AlreadyAnswered,
        ChoiceDataError,
        ChoiceGPError,
        Defect,
        ExtrapolationWarning,
        FileWarning,
        NotPossible,
        ReadingNote,
        ReadingWarning,
        StoreError,
        StudyFull,
        TrustWarning,
        Unavailable,
    )
    from choicegp.estimators.batch_preference_gp import BatchPreferenceGP
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.estimators.n_utilities import select_n_utilities
    from choicegp.estimators.pareto_embedding import EmbeddingSearch, ParetoEmbedding, search_embedding
    from choicegp.estimators.preference_gp import GeneralPreferenceGP, PairGP, PreferenceGP
    from choicegp.evaluation.diagnosis import Diagnosis
    from choicegp.evaluation.predictive_checks import Check
    from choicegp.fitting.embedding import EmbeddingFit
    from choicegp.fitting.methods import MCMC, Dense, Paper, Sparse
    from choicegp.fitting.record import FitResult, Utilities
    from choicegp.model.prior import HyperPriors
    from choicegp.prediction.segments import Segments
    from choicegp.reporting.report import report
    from choicegp.selection.compare import compare
    from choicegp.selection.loo import CavityDiagnostics, LooResult, PsisDiagnostics
    from choicegp.selection.n_utilities import SelectionResult

# As for every library: messages are for programs that ask for them, and nothing is printed by default.
logging.getLogger("choicegp").addHandler(logging.NullHandler())

# XLA's warnings on standard error are for its developers.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_PLACES = {
    "data.choices": "ChoiceData",
    "data.folder": "ChoiceFolder",
    "data.preferences": "Preferences preferences",
    "elicitation.between": "next_set_between",
    "elicitation.design": "next_set next_sets",
    "elicitation.request": "Proposed",
    "elicitation.session": "ChoiceSession",
    "elicitation.stopping": "Hint",
    "elicitation.store": "Store",
    "errors": (
        "AlreadyAnswered ChoiceDataError ChoiceGPError Defect ExtrapolationWarning FileWarning NotPossible ReadingNote "
        "ReadingWarning StoreError StudyFull TrustWarning Unavailable"
    ),
    "estimators.batch_preference_gp": "BatchPreferenceGP",
    "estimators.choice_gp": "ChoiceGP",
    "estimators.n_utilities": "select_n_utilities",
    "estimators.pareto_embedding": "EmbeddingSearch ParetoEmbedding search_embedding",
    "estimators.preference_gp": "GeneralPreferenceGP PairGP PreferenceGP",
    "evaluation.diagnosis": "Diagnosis",
    "evaluation.predictive_checks": "Check",
    "fitting.embedding": "EmbeddingFit",
    "fitting.methods": "Dense MCMC Paper Sparse",
    "fitting.record": "FitResult Utilities",
    "model.prior": "HyperPriors",
    "prediction.segments": "Segments",
    "reporting.report": "report",
    "selection.compare": "compare",
    "selection.loo": "CavityDiagnostics LooResult PsisDiagnostics",
    "selection.n_utilities": "SelectionResult",
}
_HOME = {name: f"choicegp.{place}" for place, names in _PLACES.items() for name in names.split()}
_MODULES = ("datasets", "inferences", "kernels", "likelihoods", "metrics", "plots")

__all__ = [
    "MCMC", "AlreadyAnswered", "BatchPreferenceGP", "CavityDiagnostics", "Check", "ChoiceData", "ChoiceDataError",
    "ChoiceFolder", "ChoiceGP", "ChoiceGPError", "ChoiceSession", "Defect", "Dense", "Diagnosis", "EmbeddingFit",
    "EmbeddingSearch", "ExtrapolationWarning", "FileWarning", "FitResult", "GeneralPreferenceGP", "Hint", "HyperPriors",
    "LooResult", "NotPossible", "PairGP", "Paper", "ParetoEmbedding", "PreferenceGP", "Preferences", "Proposed",
    "PsisDiagnostics", "ReadingNote", "ReadingWarning", "Segments", "SelectionResult", "Sparse", "Store", "StoreError",
    "StudyFull", "TrustWarning", "Unavailable", "Utilities", "__version__", "compare", "datasets", "inferences",
    "kernels", "likelihoods", "metrics", "next_set", "next_set_between", "next_sets", "plots", "preferences", "report",
    "search_embedding", "select_n_utilities",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"choicegp.{name}")
    raise AttributeError(f"module 'choicegp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
