"""Checks of arguments: each returns the value in its own type, or raises one clear message."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np

from choicegp.errors import ChoiceGPError


def whole_number(name: str, value: object, least: int) -> int:
    """Return `value` as an int, or say what is wrong with the argument called `name`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ChoiceGPError(f"{name} must be a whole number of at least {least}; got {plain(value)!r}")
    return int(value)


def seed(random_state: object) -> int:
    """Return the seed that ``random_state`` names; None draws a new one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return whole_number("random_state", random_state, 0)


def check_one_of(name: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a value of an argument that is none of its options."""
    if not isinstance(value, str) or value not in options:
        raise ChoiceGPError(f"{name} must be {' or '.join(map(repr, options))}, not {value!r}")


def number_option(name: str, value: Any, least: float, most: float) -> float:
    """Check that an option is a number between two others."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise ChoiceGPError(f"{name} must be a number between {least:g} and {most:g}; got {value!r}")
    return float(value)


def jobs_option(value: Any) -> int | None:
    """Check ``n_jobs``: a number, -1 or None."""
    return value if value is None or value == -1 else whole_number("n_jobs", value, 1)


def flag_option(name: str, value: Any) -> bool:
    """Check that an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ChoiceGPError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def kind_of(value: object) -> str:
    """Name the type of a wrong argument: 'None', 'an int', 'a dict'."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python object of the same value, for messages."""
    return value.item() if isinstance(value, np.generic) else value


def check_distinct(names: Iterable[Any], what: str) -> None:
    """Refuse names that repeat."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise ChoiceGPError(f"the {what} must have different names: {name!r} appears twice")
        seen.add(name)


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """List names in a message, not too many of them."""
    kept = [repr(plain(name)) for name in names]
    return ", ".join(kept[:limit]) + (f" and {len(kept) - limit} more" if len(kept) > limit else "")
