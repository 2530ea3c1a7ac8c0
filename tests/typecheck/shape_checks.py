"""The checker of shapes in the tests: beartype on the arrays that a signature names, and on those in named tuples.

Other hints are left to mypy, because tests pass wrong arguments on purpose.  JAX makes named tuples out of anything
(shapes, axes, placeholders), so that they cannot be checked where they are made: they are checked where a function
takes or returns them.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

from beartype import beartype
from beartype.door import is_bearable
from beartype.vale import Is
from jaxtyping import AbstractArray, jaxtyped


def checked(function: Callable) -> Callable:
    """Have beartype check the arrays among the arguments and the results of ``function``."""
    function.__annotations__ = {name: _shapes_of(hint) for name, hint in function.__annotations__.items()}
    return beartype(function)


def _shapes_of(hint: Any) -> Any:
    if inspect.isclass(hint) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return Annotated[hint, Is[_fields_fit]]
    return hint if _names_shape(hint) else Any


def _names_shape(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(_names_shape(part) for part in get_args(hint))


def _fields_fit(record: Any) -> bool:
    hints = get_type_hints(type(record))
    # The letters of a record are its own: two groups of n objects each may differ in n.
    with jaxtyped("context"):
        return all(is_bearable(getattr(record, name), _shapes_of(hint)) for name, hint in hints.items())
