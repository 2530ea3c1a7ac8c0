"""Checks of what a study is given: names, keys, object ids and settings."""

import json
import re
from collections.abc import Iterable
from typing import Any

from choicegp.checks import listed, plain
from choicegp.elicitation.events import ObjectId
from choicegp.errors import ChoiceGPError

_LONGEST_NAME = 200
_LONGEST_KEY = 100
_MADE = re.compile(r"participant-\d+")


def participant_column(key: object) -> str:
    """Return the column by which a participant is found."""
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise ChoiceGPError(f"a participant is named by a text or an id, not by {key!r}")
    return "name" if isinstance(key, str) else "id"


def object_ids(ids: Iterable[ObjectId], name: str) -> tuple[ObjectId, ...]:
    """Return object ids as plain values, or refuse those that repeat."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ChoiceGPError(f"{name} must be a list of object ids, not {ids!r}")
    given = tuple(plain(one) for one in ids)
    if len(set(given)) < len(given):
        raise ChoiceGPError(f"{name} holds an object twice: {listed(given)}")
    return given


def json_dict(settings: dict[str, Any], name: str = "settings") -> dict[str, Any]:
    """Refuse what is not a dict that JSON can hold."""
    try:
        if isinstance(settings, dict) and json.loads(json.dumps(settings, allow_nan=False)) == settings:
            return settings
    except (TypeError, ValueError):
        pass
    raise ChoiceGPError(f"{name} must be a dict of what JSON can hold: texts, numbers, lists and such dicts")


def participant_name(name: Any) -> str | None:
    """Refuse a name that nobody could read or that could be taken for another."""
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise ChoiceGPError(f"a name must be a text of 1 to {_LONGEST_NAME} printable letters; got {name!r}")
    if _MADE.fullmatch(name):
        raise ChoiceGPError(f"{name!r} is what a participant without a name is called; choose another name")
    return name


def question_key(key: Any) -> str:
    """Refuse what cannot be a key."""
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise ChoiceGPError(f"a key must be a text of 1 to {_LONGEST_KEY} printable letters; got {key!r}")
    return key
