"""What servers and workers leave for each other in the database, as compressed JSON: nothing there can run."""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from choicegp.elicitation.events import ObjectId


class Setup(NamedTuple):
    """What workers need to know of a study.

    Attributes
    ----------
    columns : tuple of str
        The features that are learned from.
    decimal : {".", ","} or None
        See `StudySettings`; also the next ones.
    sets, set_size, utilities : int
    design : str
    threshold : bool
    words : mapping
        For each language, the default first: the ``labels`` of columns, and what the ``axis`` of a picture says.
    """

    columns: tuple[str, ...]
    decimal: str | None
    sets: int
    set_size: int
    utilities: int
    design: str
    threshold: bool
    words: Mapping[str, Mapping[str, Any]]

    def words_in(self, language: object) -> Mapping[str, Any]:
        """Return the words of a language, or of the default one."""
        return self.words.get(str(language)) or next(iter(self.words.values()))


class Proposal(NamedTuple):
    """A set to show, and why."""

    shown: tuple[ObjectId, ...]
    design: str
    value: float | None = None
    reason: str | None = None
    model: str | None = None


class Prepared(NamedTuple):
    """The next sets for a person, and how many answers they follow from."""

    n_answers: int
    sets: tuple[Proposal, ...]


class Driver(NamedTuple):
    """What a feature does to one criterion: its column, the direction, the best value and the size."""

    column: str
    direction: str
    best: Any
    size: float


class Learned(NamedTuple):
    """What was learned from answers.

    Attributes
    ----------
    n_answers : int
    drivers : tuple of tuple of Driver
        For each criterion, the largest first.
    matter : tuple of str
        Columns by how much they matter in any criterion.
    shortlist : tuple of (id, probability)
    pictures : dict of str to bytes
        SVG: "matters" for participants, "effects" and "objects" for the owner.
    model : bytes
        The file that ``choicegp predict`` reads.
    """

    n_answers: int
    drivers: tuple[tuple[Driver, ...], ...]
    matter: tuple[str, ...]
    shortlist: tuple[tuple[ObjectId, float], ...]
    pictures: Mapping[str, bytes]
    model: bytes


class Share(NamedTuple):
    """What part of the people would keep an object, with the ends of the 95% interval, and what part would take it."""

    name: str
    keep: float
    low: float
    high: float
    take: float


class Segment(NamedTuple):
    """People who choose in the same way: their number, their part of all, what sets them apart, and who they are."""

    number: int
    share: float
    words: str
    people: tuple[str, ...]


class LearnedPeople(NamedTuple):
    """What is known of people who differ.

    Attributes
    ----------
    n_answers, n_people : int
    n_criteria : int
        How many utilities the answers of all show.
    reason : str
        Why that number.
    shares : tuple of Share
        Of the objects that most people would keep, offered together.
    segments : tuple of Segment
        None for few people.
    stability : str
        How sure the segments are.
    pictures : dict of str to bytes
        SVG: "shares", and "segments" where there are any.
    model : bytes
        The file of the hierarchical model.
    """

    n_answers: int
    n_people: int
    n_criteria: int
    reason: str
    shares: tuple[Share, ...]
    segments: tuple[Segment, ...]
    stability: str
    pictures: Mapping[str, bytes]
    model: bytes


def packed(value: Any) -> bytes:
    """Return a value as compressed JSON."""
    return zlib.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def unpacked(content: bytes) -> Any:
    """Return what was packed.

    Examples
    --------
    >>> unpacked(packed({"a": [1, "x"]}))
    {'a': [1, 'x']}
    """
    return json.loads(zlib.decompress(content))


def setup_of(content: bytes) -> Setup:
    """Read a setup."""
    found = Setup(*unpacked(content))
    return found._replace(columns=tuple(found.columns))


def proposals_of(rows: list[list[Any]]) -> tuple[Proposal, ...]:
    """Read sets to show."""
    return tuple(Proposal(tuple(row[0]), *row[1:]) for row in rows)


def prepared_of(content: bytes) -> Prepared:
    """Read the next sets of a person."""
    n_answers, rows = unpacked(content)
    return Prepared(n_answers, proposals_of(rows))


def packed_result(found: Learned | LearnedPeople) -> bytes:
    """Write what was learned."""
    pictures = {name: picture.decode() for name, picture in found.pictures.items()}
    return packed([*found[:-2], pictures, base64.b64encode(found.model).decode()])


def learned_of(content: bytes) -> Learned:
    """Read what was learned."""
    n_answers, drivers, matter, shortlist, pictures, model = unpacked(content)
    return Learned(
        n_answers,
        tuple(tuple(Driver(*one) for one in criterion) for criterion in drivers),
        tuple(matter),
        tuple((label, probability) for label, probability in shortlist),
        *_files(pictures, model),
    )


def learned_people_of(content: bytes) -> LearnedPeople:
    """Read what is known of people who differ."""
    n_answers, n_people, n_criteria, reason, shares, segments, stability, pictures, model = unpacked(content)
    return LearnedPeople(
        n_answers,
        n_people,
        n_criteria,
        reason,
        tuple(Share(*one) for one in shares),
        tuple(Segment(number, share, words, tuple(people)) for number, share, words, people in segments),
        stability,
        *_files(pictures, model),
    )


def _files(pictures: dict[str, str], model: str) -> tuple[dict[str, bytes], bytes]:
    return {name: text.encode() for name, text in pictures.items()}, base64.b64decode(model)
