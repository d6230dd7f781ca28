"""Base class of the feature builders: continuing a stream, looking ahead, and saving.

A builder is a pure function: ``_build(state, rows) -> features, state``.  The public methods
differ in the state they start from and in whether they keep the new one; after an error the state
is what it was.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag
from olsq.features.parameters import described
from olsq.features.table import Table, check_kind, choose_kind, make_frame, read_table
from olsq.online.conventions import Parameters
from olsq.online.files import format as files
from olsq.online.rows.frames import names_or_numbers, with_numpy_dates
from olsq.online.rows.inputs import check_feature_names, check_size, feature_names, not_fitted

State = dict[str, Any]


class FeatureBuilder(Parameters):
    """Base of the builders; subclasses give the parameters and these methods.

    ``_open(table)`` is the state before the first row, ``_build(state, table, learn)`` gives
    features (n, k) and the state after the rows, ``_names(state, labels, targets)`` names,
    ``_check_state(state, width, targets)`` refuses a state that a file cannot have.

    Examples
    --------
    >>> from olsq.features import Lags
    >>> lags = Lags([1, 2]).fit(None, [0.0, 1.0, 2.0, 3.0])
    >>> lags.partial_transform(None, [4.0, 5.0])
    array([[3., 2.],
           [4., 3.]])
    """

    carry: bool
    _text = False  # whether X may be an array of text or objects
    _uses_y = False  # whether y's history is needed
    _timed = False  # whether it looks back in time

    # -- to be given by subclasses ----------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise ValueError for a parameter that is out of range."""
        raise NotImplementedError

    def _open(self, table: Table) -> State:
        raise NotImplementedError

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        raise NotImplementedError

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        raise NotImplementedError

    def _check_state(self, state: State, width: int, targets: int) -> None:
        raise NotImplementedError

    def _restart(self, state: State, table: Table) -> State:
        """Return the state at the start of a new stream, with what ``fit`` learned but no rows."""
        return self._open(table)

    # -- public -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike | None = None, *, times: Any = None) -> Self:
        """Forget everything and take X, y as the first rows of a stream.

        Parameters
        ----------
        X : array or data frame (n, d), or None where only y is read
        y : array (n,) or (n, m), optional
        times : dates or numbers (n,), optional
            Of the rows, for builders that look back in time (see :class:`Lags`).

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad shapes, columns that are not there, parameters out of range, a y that is
            needed and not given.
        """
        self._run(X, y, times, restart=True)
        return self

    def fit_transform(self, X: Any, y: ArrayLike | None = None, *, times: Any = None) -> Any:
        """Call :meth:`fit` and return the features of its rows: array (n, k), float64."""
        return self._run(X, y, times, restart=True)

    def partial_transform(self, X: Any, y: ArrayLike | None = None, *, times: Any = None) -> Any:
        """Return the features of the rows that follow those of earlier calls, and append these to
        them.

        Parameters
        ----------
        X : array or data frame (n, d), or None
        y : array (n,) or (n, m), optional
            Where features are made of y: its values in these rows, which later rows' features
            will use.  Row t's own do not: :meth:`peek` gives them before y is known.
        times : dates or numbers (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        array (n, k), float64
            NaN where history does not reach back far enough, which olsq's regressions skip.  Any
            cut of a stream into calls gives the same numbers.

        Raises
        ------
        ValueError, TypeError
            As :meth:`fit`; for X or y other than earlier calls', or a parameter changed since.
        """
        return self._run(X, y, times, restart=False)

    def peek(self, X: Any, y: ArrayLike | None = None, *, times: Any = None) -> Any:
        """Return what :meth:`partial_transform` would, without taking the rows as history.

        y may be left out: the features of the first row do not need it, those of later rows are
        NaN where they would be made of it.  Without X and y: of one row, or one for each of
        ``times``.
        """
        self._require_fitted()
        if X is None and y is None:
            n = 1 if times is None else len(times)
            y = np.full((n, self._targets) if self._targets else n, np.nan)
        table = self._read(X, y, times, first=False, need_y=False)
        return self._wrap(self._build(self._state, table, True)[0], table)

    def transform(self, X: Any, y: ArrayLike | None = None, *, times: Any = None) -> Any:
        """Return features of X as a stream of its own, or with ``carry`` as rows after
        :meth:`fit`'s.

        Parameters
        ----------
        X : array or data frame (n, d), or None
        y : array (n,) or (n, m), optional
            Needed where features are made of it; with ``carry`` they are NaN without it.
        times : dates or numbers (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        array (n, k), float64
            History stays what it was.
        """
        self._require_fitted()
        table = self._read(X, y, times, first=False, need_y=not self.carry)
        state = self._state if self.carry else self._restart(self._state, table)
        return self._wrap(self._build(state, table, False)[0], table)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Return the names of the features: array (k,) of str.

        Parameters
        ----------
        input_features : array (d,) of str, optional
            Names of X's columns where X was an array without any.
        """
        self._require_fitted()
        fitted_names = getattr(self, "feature_names_in_", None)
        names_in = (
            fitted_names if input_features is None else np.asarray(input_features, dtype=object)
        )
        if input_features is not None and names_in is not None:
            if fitted_names is not None and not np.array_equal(fitted_names, names_in):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(names_in) != self.n_features_in_:
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(names_in)}"
                )
        labels = names_or_numbers(names_in, self.n_features_in_)
        names = number_repeats(self._names(self._state, labels, self._targets))
        return np.asarray(names, dtype=object)

    def save(self, path: str | os.PathLike[str], metadata: dict[str, Any] | None = None) -> None:
        """Write parameters and history to one file; ``olsq.load`` continues bit for bit.

        Parameters
        ----------
        path : path
            Replaced atomically: complete or not there.
        metadata : dict, optional
            Anything that JSON can hold; ``metadata_`` of what is loaded.

        Raises
        ------
        ValueError
            If nothing has been seen yet, or a parameter or ``metadata`` is nothing JSON can hold.
        """
        files.write(path, *self._snapshot(metadata))

    def to_bytes(self, *, metadata: dict[str, Any] | None = None) -> bytes:
        """Return the bytes that :meth:`save` would write, for ``olsq.loads``."""
        return files.packed(*self._snapshot(metadata))

    def _snapshot(self, metadata: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        from olsq.features.files import snapshot

        self._require_fitted()
        self._check_made_with()
        return snapshot(self, self._state, metadata or {})

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what methods return: "default" (arrays), "pandas" or "polars" frames.

        None leaves it.  Where nothing was chosen, scikit-learn's ``transform_output`` decides.
        """
        if transform is not None:
            check_kind(transform)
            self._output = transform
        return self

    # -- inside -----------------------------------------------------------------------------------

    def _run(self, X: Any, y: Any, times: Any, *, restart: bool) -> Any:
        first = restart or not self.__sklearn_is_fitted__()
        if not first:
            self._check_made_with()
        self._check_parameters()
        check_flag("carry", self.carry)
        table = self._read(X, y, times, first=first, need_y=True)
        if restart:
            check_size((table.n, max(table.width, 1)), self, None, allow_empty=False)
        state = self._open(table) if first else self._state
        features, state = self._build(state, table, True)
        if first:
            self.__dict__.pop("feature_names_in_", None)
            names = feature_names(_Columns.of(X))
            if names is not None:
                self.feature_names_in_ = names
            self.n_features_in_, self._targets = table.width, table.targets
            self._made_with = described(self)
        self._state = state
        return self._wrap(features, table)

    def _read(self, X: Any, y: Any, times: Any, *, first: bool, need_y: bool) -> Table:
        n_features = None if first else self.n_features_in_
        if not first:
            check_feature_names(_Columns.of(X), getattr(self, "feature_names_in_", None))
        table = read_table(X, y, self, n_features, text=self._text)
        table = table._replace(times=self._times_of(X, y, times, table.n))
        if self._uses_y and table.y is None:
            if need_y:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None: "
                    "its values are the history of later rows. peek(X) gives the features of rows "
                    "whose y is not known yet, and carry=True lets transform(X) do so"
                )
            empty = np.full((table.n, max(self._targets, 1)), np.nan)
            return table._replace(y=empty, targets=self._targets)
        if self._uses_y and not first and table.targets != self._targets:
            raise ValueError(
                f"y must have {self._targets or 'no'} columns as in earlier calls, got "
                f"{table.targets or 'none'}"
            )
        return table

    def _times_of(self, X: Any, y: Any, times: Any, n: int) -> Any:
        """Return the times of n rows where the builder needs them: as given, or of an index."""
        if not self._timed:
            if times is not None:
                raise ValueError(
                    "times are given, but nothing looks back in time: give lags such as '24h', or "
                    "step="
                )
            return None
        from olsq.features.look_back import is_dates_index, read_row_times  # which has builders

        for rows in (X, y):
            index = with_numpy_dates(getattr(rows, "index", None))
            times = index if times is None and is_dates_index(index) else times
        if times is None:
            return None
        found = read_row_times(times)
        if found.values.shape != (n,):
            raise ValueError(f"times must hold one time for each of {n} rows")
        return found

    def _wrap(self, features: NDArray[np.float64], table: Table) -> Any:
        kind = choose_kind(self.__dict__.get("_output"))
        if kind == "default":
            return features
        return make_frame(kind, features, self.get_feature_names_out(), table.index)

    def _adopt(
        self, state: State, width: int, targets: int, names: list[str] | None, metadata: Any
    ) -> None:
        """Take over the state read from a file, which has been checked."""
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_, self._targets, self.metadata_ = width, targets, metadata
        self._state, self._made_with = state, described(self)

    def _check_made_with(self) -> None:
        now = described(self)
        if now != self._made_with:
            old, new = self._made_with["parameters"], now["parameters"]
            name = next((k for k in new if new[k] != old[k] and k != "carry"), None)
            if name is None:  # what transform does may change
                return
            raise ValueError(
                f"{name} is {new[name]!r} now, but this {type(self).__name__} has a history made "
                f"with {name}={old[name]!r}: call fit to start anew, or set it back"
            )

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise not_fitted(
                self,
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or "
                "'partial_transform' with appropriate arguments before using this builder.",
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=self._uses_y, multi_output=True),
            transformer_tags=TransformerTags(preserves_dtype=["float64"]),
            input_tags=InputTags(allow_nan=True, string=self._text, categorical=self._text),
        )


class _Columns:
    """Gives an Arrow table's column names as ``columns``, as frames of pandas and Polars do."""

    def __init__(self, columns: Any) -> None:
        self.columns = columns

    @classmethod
    def of(cls, X: Any) -> Any:
        names = getattr(X, "column_names", None)
        return X if names is None else cls(names)


def number_repeats(names: list[str]) -> list[str]:
    """Append _2, _3 ... to names that came before, so that every column has a name of its own."""
    taken: set[str] = set()
    numbered = []
    for name in names:
        unique, n = name, 1
        while unique in taken or (n > 1 and unique in names):
            n += 1
            unique = f"{name}_{n}"
        taken.add(unique)
        numbered.append(unique)
    return numbered
