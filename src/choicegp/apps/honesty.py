"""The command that tests honesty, an experiment whose runs belong to the sources that made them."""

import importlib
import importlib.util
import os

from choicegp.apps.reproduce import RunRequest, reproduce
from choicegp.errors import ChoiceGPError
from choicegp.experiments.experiment import ExperimentOptions

_MEASURES = "choicegp.experiments.honesty_measures"
_DIGITS = 12  # of the digest of the sources


def check_honesty(options: ExperimentOptions, out: str, data: str | None, jobs: int) -> None:
    """Make the runs that are not done yet with the present sources, and write the page, its table and its figure."""
    if importlib.util.find_spec("sklearn") is None:
        raise ChoiceGPError("the logistic model needs scikit-learn: pip install scikit-learn")
    tables = data is not None or bool(os.environ.get("CHOICEGP_DATA"))
    reproduce(RunRequest("honesty", options._replace(tables=tables, code=_present_code()), out, data, jobs))


def _present_code() -> str:
    """Return a digest of the sources that runs depend on, so that figures of an earlier state are not reused."""
    from choicegp.compute.sources import digest_of_sources

    measures = importlib.import_module(_MEASURES)
    return (digest_of_sources([measures.__name__]) or "unknown")[:_DIGITS]
