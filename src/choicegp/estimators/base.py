"""scikit-learn's manners: parameters that are stored by ``__init__``, listed, set and cloned.

scikit-learn asks for methods, not for ancestry, so its base class is not inherited: importing it takes longer
than a fit of a hundred sets, and a program that never uses scikit-learn need not pay for it.
"""

import inspect
from typing import Any, Self

from choicegp.errors import ChoiceGPError


class Estimator:
    """Base of everything that is fitted."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Return the parameters of ``__init__`` and their default values."""
        signature = inspect.signature(cls.__init__)
        return {name: parameter.default for name, parameter in signature.parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; none has parameters of its own, so ``deep`` changes nothing."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ChoiceGPError(f"{type(self).__name__} has no parameter {name!r}: it has {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        told = []
        for name, default in self._defaults().items():
            value = getattr(self, name)
            if value is not default and repr(value) != repr(default):
                told.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(told)})"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of estimator this is: no classifier, no regressor, needs no ``y``."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))
