"""Choices in a folder of Parquet files, which need not fit into memory together."""

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import counted, kind_of, listed, plain
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import FeatureScaling
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.cells import NumberForm
from choicegp.reading.columns import LongColumns, Roles, answer_columns, has_own_kinds, long_columns, question_of
from choicegp.reading.defects import Empty, Missing, Rules, factorized, offsets_of, settled
from choicegp.reading.encoding import MISSING, FeatureColumn, FeatureEncoding
from choicegp.reading.long import read_long
from choicegp.reading.text import open_parquet

N_SAMPLED = 2000


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ChoiceFolder:
    """A folder of Parquet files, each a long table of choices, read one file at a time; immutable.

    All files are read once when it is made: what is wrong with them is known before anything is learned from them.
    After that it holds a few numbers per set and a sample; a file's choices are read when they are needed. Memory is
    taken for a few files at a time, however many there are: prefer many files of some megabytes to few large ones.

    Parameters
    ----------
    path : str or path
        All its ``.parquet`` files are read, in the order of their names. They have the same columns, and all rows of a
        set are in one file.
    set_id, object_id, chosen, features, respondent, weight, available, kind, encoding, empty, missing, at_most
        As in :meth:`ChoiceData.from_long`. With ``missing="level"``, the mean that stands for a missing number is the
        mean over all files.
    numbers, decimal
        As in :meth:`ChoiceData.from_long`.

    Attributes
    ----------
    files : tuple of Path
    encoding : FeatureEncoding
        Of the features in all files; unless it was given, it knows every category that occurs in any of them.
    sizes : int array (m,)
        Number of objects of each set.
    starts : int array (files + 1,)
        The sets of file ``i`` have the numbers ``starts[i]`` to ``starts[i + 1] - 1``.
    moments : FeatureScaling
        Mean and standard deviation of the features of the shown objects; an object counts once in every file.
    sample : ChoiceData
        At most 2000 sets, drawn at random.
    n_empty : int
        Number of sets from which nothing was chosen.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0]], set_ids=["a"]).write(f"{folder}/monday.parquet")
    >>> ChoiceData.from_pairs([[3.0], [5.0]], [[0, 1]], set_ids=["b"]).write(f"{folder}/tuesday.parquet")
    >>> choices = ChoiceFolder(folder)
    >>> choices
    ChoiceFolder(2 sets in 2 files, 1 feature, choices)
    >>> choices.read(1).X.ravel()
    array([3., 5.])
    """

    path: Path
    files: tuple[Path, ...]
    encoding: FeatureEncoding
    sizes: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_empty: int
    moments: FeatureScaling
    sample: ChoiceData
    _roles: Roles
    _features: tuple[str, ...]
    _rules: Rules
    _form: NumberForm

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        set_id: str | Sequence[str] = "choice_id",
        object_id: str | None = "alt_id",
        chosen: str | Sequence[str] | None = "choice",
        features: Sequence[str] | None = None,
        respondent: str | None = None,
        weight: str | None = None,
        available: str | None = None,
        kind: str | None = None,
        encoding: FeatureEncoding | None = None,
        empty: Empty = "error",
        missing: Missing = "error",
        at_most: int | None = None,
        numbers: Sequence[str] = (),
        decimal: str | None = None,
    ) -> None:
        question, column = question_of(kind)
        best, worst = answer_columns(chosen, question)
        roles = Roles(set_id, object_id, best, available, respondent, weight, column, worst)
        rules = Rules("raise", empty, missing, question, at_most).checked()
        form = NumberForm(numbers, decimal)
        files = _parquet_files(path)
        _check_same_columns(files, roles)
        scan = _Scan(roles, features, encoding, rules, form)
        for file in files:
            scan.add(file)
        sizes, starts = np.concatenate(scan.sizes), offsets_of(np.array([*map(len, scan.sizes)]))
        sizes.setflags(write=False)
        starts.setflags(write=False)
        # The class is frozen, which forbids to set attributes one by one.
        self.__dict__.update(path=Path(path), files=files, sizes=sizes, starts=starts, moments=scan.moments())
        self.__dict__.update(n_empty=scan.n_empty)
        self.__dict__.update(encoding=scan.encoding(), _roles=roles, _features=tuple(scan.features or ()), _rules=rules)
        self.__dict__.update(_form=form)
        self._check_distinct(np.concatenate(scan.hashes))
        sampled = long_columns(scan.sampled.table, roles._replace(set_id=_joined_name(roles)), self._features)
        self.__dict__.update(sample=_read(sampled, self.encoding, rules)[0])
        for remark, n in scan.remarks.items():
            where = f" (in {counted(n, 'file')} of {len(files)})" if len(files) > 1 else ""
            warnings.warn(remark[0](f"{remark[1]}{where}"), stacklevel=2)

    @property
    def has_choices(self) -> bool:
        """Whether the data have choices."""
        return self._roles.chosen is not None

    def read(self, file: int) -> ChoiceData:
        """Return the choices of one file; their features are encoded as in all files.

        Parameters
        ----------
        file : int
            Its place in ``files``.

        Returns
        -------
        ChoiceData
        """
        columns = long_columns(self.files[file], self._roles, self._features, self._form)
        data, _ = _read(columns, self.encoding, self._rules)
        if not np.array_equal(np.diff(data.offsets), self.sizes[self.starts[file] : self.starts[file + 1]]):
            raise ChoiceGPError(f"{self.files[file]} has changed since the folder was opened: open it again")
        return data

    def _check_distinct(self, hashes: NDArray[np.uint64]) -> None:
        """Refuse a set whose rows are in two files; equal hashes are looked at more closely."""
        order = np.argsort(hashes, kind="stable")
        again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        pairs = np.searchsorted(self.starts, np.column_stack([order[again], order[again + 1]]), side="right") - 1
        for one, other in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist():
            both = np.intersect1d(self.read(one).set_ids, self.read(other).set_ids)
            if len(both):
                raise ChoiceGPError(
                    f"the set {plain(both[0])!r} is in two files, {self.files[one]} and {self.files[other]}: put all "
                    "rows of a set into one file, or give different sets different ids"
                )

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        sets, files = counted(len(self), "set"), counted(len(self.files), "file")
        features, known = len(self.encoding.feature_names), "choices" if self.has_choices else "no choices"
        return f"ChoiceFolder({sets} in {files}, {counted(features, 'feature')}, {known})"


def _parquet_files(path: Any) -> tuple[Path, ...]:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in os.fspath(path):
        raise ChoiceGPError(f"the name of a folder is needed, not {kind_of(path) if path else repr(path)}")
    folder = Path(path)
    if folder.is_file():
        raise ChoiceGPError(f"{folder} is a file, not a folder: ChoiceData.from_long reads it")
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError as error:
        raise ChoiceGPError(f"there is no folder {folder}") from error
    except OSError as error:
        raise ChoiceGPError(f"cannot read the folder {folder}: {error.strerror or error}") from error
    files = [folder / name for name in names if name.lower().endswith(".parquet") and not name.startswith(".")]
    if not files:
        others = f"it holds {listed(names, 3)}" if names else "it is empty"
        raise ChoiceGPError(f"there is no .parquet file in the folder {folder}: {others}")
    return tuple(files)


def _check_same_columns(files: Sequence[Path], roles: Roles) -> None:
    """Refuse files of different columns, or with ids of different kinds, before any of them is read."""
    first = _kinds_of_columns(files[0])
    for file in files[1:]:
        kinds = _kinds_of_columns(file)
        if kinds.keys() != first.keys():
            own, other = [name for name in first if name not in kinds], [name for name in kinds if name not in first]
            parts = [f"{where} has {listed(extra)}" for where, extra in ((files[0], own), (file, other)) if extra]
            raise ChoiceGPError(
                f"the files differ in their columns: {', '.join(parts)}, which the other lacks; "
                "all files of a folder need the same columns"
            )
        for role, name in roles.columns():
            if role not in ("set_id", "object_id", "respondent") or name not in first:
                continue
            # A column without values, which has no type, is refused for that when it is read.
            if kinds[name] != first[name] and "null" not in (kinds[name], first[name]):
                raise ChoiceGPError(
                    f"the ids in column {name!r} are {first[name]} in {files[0]} and {kinds[name]} in {file}: "
                    "store them as the same type in all files"
                )


def _kinds_of_columns(file: Path) -> dict[Any, str]:
    import pyarrow as pa

    with open_parquet(file) as opened:
        schema = opened.schema_arrow

    def kind(column: Any) -> str:
        if pa.types.is_dictionary(column):
            column = column.value_type
        if pa.types.is_integer(column):
            return "whole numbers"
        text = pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_string_view(column)
        return "text" if text else str(column)

    return {name: kind(column) for name, column in zip(schema.names, schema.types, strict=True)}


def _read(columns: LongColumns, encoding: FeatureEncoding | None, rules: Rules) -> tuple[ChoiceData, Sequence[Warning]]:
    """Return choice data, and remarks that were not yet made: a file is read many times."""
    draft, findings = read_long(columns, encoding, rules)
    return ChoiceData(**settled(draft, findings, rules)), findings.remarks


def _joined_name(roles: Roles) -> str:
    """Name the one column into which several columns of a set's id are joined."""
    return "/".join(str(name) for role, name in roles.columns() if role == "set_id")


class _Scan:
    """What is learned from the files, one after the other."""

    def __init__(
        self, roles: Roles, features: Sequence[str] | None, encoding: FeatureEncoding | None, rules: Rules,
        form: NumberForm,
    ) -> None:  # fmt: skip
        self.roles, self.features, self._given, self.rules, self.form = roles, features, encoding, rules, form
        self.remarks: Counter[tuple[type[Warning], str]] = Counter()
        self.sizes: list[NDArray[np.int32]] = []
        self.hashes: list[NDArray[np.uint64]] = []
        self.sampled = _Sample(N_SAMPLED)
        self.n_empty = 0  # sets from which nothing was chosen
        self._columns: dict[str, _Column] = {}

    def add(self, file: Path) -> None:
        """Read one file; the features of the first one are taken from all."""
        columns = long_columns(file, self.roles, self.features, self.form)
        if has_own_kinds(columns.features, self.roles, None):
            raise ChoiceGPError(
                f"{file}: the column 'kind' seems to say what was asked of each set: pass kind='kind', or name the "
                "features"
            )
        self.features = columns.features.columns.tolist()
        try:
            data, remarks = _read(columns, self._given, self.rules)
        except ChoiceDataError:
            raise
        except ChoiceGPError as error:
            # A message about a column does not name the file by itself.
            raise error if str(file) in str(error) else ChoiceGPError(f"{file}: {error}") from error
        self.sizes.append(np.diff(data.offsets).astype(np.int32))
        if data.flat_chosen is not None:
            self.n_empty += int(np.sum(np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int) == 0))
        self.hashes.append(pd.util.hash_array(data.set_ids))
        self.remarks.update({(type(remark), str(remark).removesuffix("; see data.skipped")) for remark in remarks})
        self.sampled.add(columns, self.roles)
        for column, part in data.encoding.by_column(data.X):
            new = _Column.of(column, part, file)
            known = self._columns.get(column.name)
            self._columns[column.name] = new if known is None else known.joined(new)

    def encoding(self) -> FeatureEncoding:
        """Return the encoding that was given, or the one that knows the categories of all files."""
        return self._given or FeatureEncoding(tuple(column.filled for column in self._columns.values()))

    def moments(self) -> FeatureScaling:
        """Return the moments of the features as that encoding has them."""
        columns = [self._columns[column.name].encoded(column) for column in self.encoding().columns]
        mean, sd = (np.concatenate([getattr(part, name) for part in columns]) for name in ("mean", "sd"))
        return FeatureScaling(columns[0].n, mean, sd)


@dataclass(frozen=True)
class _Column:
    """A column in all files so far.

    Of numbers it holds the moments of those that are not missing, and how many are; of words, how often each category
    occurs.
    """

    column: FeatureColumn
    moments: FeatureScaling
    counts: dict[Any, float]
    n_missing: int
    file: Path

    @classmethod
    def of(cls, column: FeatureColumn, part: NDArray[np.float64], file: Path) -> "_Column":
        if column.kind == "numeric":
            known = part[:, :1] if column.fill is None else part[part[:, 1] == 0, :1]
            return cls(column, FeatureScaling.of(known), {}, len(part) - len(known), file)
        counts = part.sum(axis=0)
        if len(column.categories) == 2:
            counts = np.array([len(part) - counts[0], counts[0]])
        named = dict(zip(column.categories, counts.tolist(), strict=False))
        return cls(column, FeatureScaling(len(part), *_NONE), named, 0, file)

    def joined(self, other: "_Column") -> "_Column":
        one, two = self.column, other.column
        if one.kind != two.kind:
            kinds = {"numeric": "numbers", "categorical": "words"}
            raise ChoiceGPError(
                f"feature {one.name!r} holds {kinds[one.kind]} in {self.file} and {kinds[two.kind]} in {other.file}: "
                "store it as the same type in all files"
            )
        categories = one.categories
        if categories != two.categories:
            # As of one table of all files: words in the order of the alphabet, and last what is missing.
            categories = tuple(
                sorted(
                    {*categories, *two.categories}, key=lambda value: (value == MISSING, isinstance(value, str), value)
                )
            )
        counts = {value: self.counts.get(value, 0.0) + other.counts.get(value, 0.0) for value in categories}
        moments, n_missing = self.moments.joined(other.moments), self.n_missing + other.n_missing
        return _Column(one._replace(categories=categories), moments, counts, n_missing, self.file)

    @property
    def filled(self) -> FeatureColumn:
        """The column, with the mean over all files in the place of missing numbers."""
        return self.column._replace(fill=float(self.moments.mean[0])) if self.n_missing else self.column

    def encoded(self, column: FeatureColumn) -> FeatureScaling:
        """Return the moments of the features that the column becomes, as ``column`` encodes it."""
        if column.kind == "numeric":
            if column.fill is None:
                return self.moments
            all_values = self.moments.joined(FeatureScaling(self.n_missing, np.array([column.fill]), np.zeros(1)))
            part = self.n_missing / all_values.n
            mean, sd = np.append(all_values.mean, part), np.append(all_values.sd, np.sqrt(part * (1.0 - part)))
            return FeatureScaling(all_values.n, mean, sd)
        share = np.array(list(self.counts.values())) / self.moments.n
        share = share[1:] if len(share) == 2 else share
        return FeatureScaling(self.moments.n, share, np.sqrt(share * (1.0 - share)))


_NONE = np.zeros(0), np.zeros(0)


class _Sample:
    """The rows of sets drawn at random from all seen so far: those with the ``n`` smallest of random keys."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.table = pd.DataFrame()
        self._rng = np.random.default_rng(0)
        self._keys = np.zeros(0)  # of the sets
        self._row_keys = np.zeros(0)

    def add(self, columns: LongColumns, roles: Roles) -> None:
        """Let the sets of a file take part."""
        of_set, sets = factorized(columns.set_id)
        keys = self._rng.random(len(sets))
        self._keys = np.sort(np.concatenate([self._keys, keys]))[: self.n]
        row_keys = keys[of_set]
        own, kept = row_keys <= self._keys[-1], self._row_keys <= self._keys[-1]
        names = roles._replace(set_id=_joined_name(roles))
        named = {name: getattr(columns, role)[own] for role, name in names.columns()}
        rows = pd.concat([pd.DataFrame(named), columns.features[own]], axis=1)
        parts = [part for part in (self.table[kept], rows) if len(part)]
        self.table = pd.concat(parts, ignore_index=True)
        self._row_keys = np.concatenate([self._row_keys[kept], row_keys[own]])
