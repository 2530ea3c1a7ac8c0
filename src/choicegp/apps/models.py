"""Models by the names that the command line has for them: which class learns what, and whose file a file is."""

import importlib
from typing import Any

from choicegp.errors import ChoiceGPError

_CLASSES = {
    "choice": ("choice_gp", "ChoiceGP"),
    "best": ("batch_preference_gp", "BatchPreferenceGP"),
    "preference": ("preference_gp", "PreferenceGP"),
    "general-preference": ("preference_gp", "GeneralPreferenceGP"),
    "pair": ("preference_gp", "PairGP"),
    "embedding": ("pareto_embedding", "ParetoEmbedding"),
}
MODELS = tuple(_CLASSES)


def class_of(name: str) -> Any:
    """Return the class of a model.

    Examples
    --------
    >>> class_of("best").__name__
    'BatchPreferenceGP'
    """
    if name not in _CLASSES:
        raise ChoiceGPError(f"there is no model {name!r}: --model takes one of {', '.join(MODELS)}")
    module, of_model = _CLASSES[name]
    return getattr(importlib.import_module(f"choicegp.estimators.{module}"), of_model)


def made(name: str, given: dict[str, tuple[str, Any]]) -> Any:
    """Make a model with the options that were given: option on the command line and value, by argument.

    An option that the model does not have is refused, and not passed over.
    """
    kind = class_of(name)
    known = kind().get_params(deep=False)
    for argument, (option, _) in given.items():
        if argument not in known:
            raise ChoiceGPError(
                f"{option} is not an option of --model {name}, which is a {kind.__name__}: leave it out"
            )
    return kind(**{argument: value for argument, (_, value) in given.items()})


def load(path: str) -> Any:
    """Read a model of any kind."""
    from choicegp.storage.archive import kind_of

    kind = kind_of(path)
    for name in MODELS:
        if class_of(name)._format == kind:
            return class_of(name).load(path)
    return class_of("choice").load(path)
