"""Formulas over a stream of frames, by formulaic, with lags that reach into earlier blocks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from olsq.arrays.checks import check_integer, check_rows_held
from olsq.features.formula_frames import as_exact, missing_like, to_caller, to_pandas
from olsq.features.formula_terms import (
    find_missing,
    has_levels,
    lag_depth,
    list_variables,
    sides_of,
)
from olsq.features.formula_transforms import guarded_transforms, holds_nan
from olsq.online.rows.inputs import not_fitted


class Formula:
    """``y ~ x + lag(y) + center(z):C(g)``: targets and regressors of every block of a frame.

    Needs the extra ``formulas``.

    Parameters
    ----------
    formula : str
        In formulaic's language (https://matthewwardrop.github.io/formulaic); without ``~`` there
        are no targets.
    history : int, optional
        Rows kept from call to call for transforms that look back.  Default: what the formula's
        ``lag(x, k)`` reach, added up where they are nested.  Give it for others, such as
        ``x.shift(2)`` or ``x.rolling(5).mean()``.

    Attributes
    ----------
    feature_names_, target_names_ : list of str
    history_ : int

    Raises
    ------
    ValueError
        If a lag is negative, which would look ahead, or no number.
    ImportError
        Without formulaic.

    Notes
    -----
    Transforms that learn (``center``, ``scale``, ``bs``, ``poly``, the levels of ``C``) learn on
    the complete rows of the first block and stay what they are.  A level that comes later is
    NaN in the columns of its variable, so that olsq's regressions skip the row; for levels to be
    expected use :class:`OneHot`.  Rows with a missing value are NaN, not dropped.  The intercept is
    a column of the formula ("Intercept", unless it has ``- 1``): regress with
    ``fit_intercept=False``, or take it out.

    What was learned is formulaic's and cannot be saved to olsq's files.  A formula is Python code:
    take none from strangers.

    Examples
    --------
    >>> import numpy as np, olsq, pandas as pd
    >>> from olsq.features import Formula
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"sales": rng.standard_normal(90), "price": rng.standard_normal(90)})
    >>> formula = Formula("sales ~ lag(sales) + center(price)")
    >>> est = olsq.RecursiveLeastSquares(fit_intercept=False)
    >>> for start in range(0, 90, 30):
    ...     X, y = formula.partial_transform(frame[start : start + 30])
    ...     _ = est.partial_fit(X, y)
    >>> est.feature_names_in_.tolist()
    ['Intercept', 'lag(sales)', 'center(price)']
    >>> est.n_samples_seen_
    89
    """

    def __init__(self, formula: str, *, history: int | None = None) -> None:
        self.formula = formula
        self.history = history

    def partial_transform(self, data: Any) -> tuple[Any, Any]:
        """Return regressors and targets of the rows that follow those of earlier calls.

        Parameters
        ----------
        data : data frame (pandas, Polars, Arrow, or what else narwhals reads)

        Returns
        -------
        X : frame (n, k) of float64
            Polars' for a Polars frame, otherwise pandas', with the index of ``data``.
        y : series (n,), frame (n, m), or None without targets

        Notes
        -----
        Nothing is learned from blocks of no rows.  Before the first row their X has the formula's
        columns where all variables are numbers, and none where levels decide on them.
        """
        frame, kind, index = to_pandas(data)
        first = not hasattr(self, "_spec")
        if first and not len(frame):
            X, y = self._sides_without_rows(frame)
            y = None if y is None else to_caller(y, kind, index, series=True)
            return to_caller(X, kind, index), y
        spec, depth, needs = (
            self._learn(frame) if first else (self._spec, self.history_, self._needs)
        )
        joined = self._prepend_history(frame, needs, depth, first)
        X, y = self._compute_sides(spec, joined, len(frame), targets=True)
        if first:
            self._spec, self.history_, self._needs = spec, depth, needs
            self.feature_names_ = list(X.columns)
            self.target_names_ = [] if y is None else list(y.columns)
        self._tail = joined.iloc[len(joined) - min(depth, len(joined)) :]
        return to_caller(X, kind, index), None if y is None else to_caller(
            y, kind, index, series=True
        )

    def peek(self, data: Any) -> Any:
        """Return regressors of the rows that follow, without taking them as history.

        Columns that only the targets, or lags of one row or more, are made of may be absent.
        """
        if not hasattr(self, "_spec"):
            raise not_fitted(
                self, "This Formula has seen no rows. Call 'partial_transform' before 'peek'."
            )
        frame, kind, index = to_pandas(data)
        frame = frame.copy()
        for name in self._needs:
            if name not in frame:
                frame[name] = np.nan
        joined = self._prepend_history(frame, self._needs, self.history_, False)
        return to_caller(self._compute_sides(self._spec, joined, len(frame), False)[0], kind, index)

    def _learn(self, frame: Any) -> tuple[Any, int, list[str]]:
        """Return formulaic's specification after learning, the rows of history, the variables."""
        try:
            import formulaic
            from formulaic.errors import FactorEvaluationError
        except ImportError:
            raise ImportError(
                'Formula needs formulaic: pip install ".[formulas]" in a checkout of olsq'
            ) from None
        parsed: Any = formulaic.Formula(self.formula)  # pyright: ignore[reportAbstractUsage]
        if isinstance(getattr(parsed, "lhs", None), tuple):
            raise ValueError(f"formula {self.formula!r}: join several targets with +, not |")
        depth = lag_depth(parsed) if self.history is None else self.history
        check_integer("history", depth, 0)
        check_rows_held("history", depth)
        needs, absent = list_variables(parsed, list(frame.columns))
        if absent:
            raise ValueError(
                f"formula {self.formula!r} needs columns {absent}; data has {list(frame.columns)}"
            )
        complete = frame[needs].notna().all(axis=1).to_numpy()
        if not complete.any():
            raise ValueError(
                "the first block has no row without a missing value: transforms have nothing to "
                "learn from"
            )
        try:
            learned = formulaic.model_matrix(
                parsed, frame[complete], context=guarded_transforms(), na_action="ignore"
            )
        except FactorEvaluationError as error:
            raise ValueError(
                f"formula {self.formula!r}, of data with {list(frame.columns)}: {error}"
            ) from None
        for spec in sides_of(learned.model_spec):
            for code, state in spec.transform_state.items():
                if holds_nan(state):
                    raise ValueError(
                        f"formula {self.formula!r}: {code} learns from missing values, which a lag "
                        "has in its first rows; take the lag of what was transformed, such as "
                        "lag(center(x))"
                    )
        return learned.model_spec, int(depth), needs

    def _sides_without_rows(self, frame: Any) -> tuple[Any, Any]:
        """Return both sides of no rows; without columns where they depend on levels to come."""
        import pandas as pd

        # Numbers of every size stand for the rows to come: transforms give their columns for them.
        example = pd.DataFrame({name: np.arange(1.0, 129.0) for name in frame})
        spec, *_ = self._learn(example)
        X, y = self._compute_sides(spec, example, 0, targets=True)
        if has_levels(sides_of(spec)[-1], frame):
            X = X.iloc[:, :0]
        if y is not None and has_levels(sides_of(spec)[0], frame):
            y = y.iloc[:, :0]
        return X, y

    def _prepend_history(self, frame: Any, needs: list[str], depth: int, first: bool) -> Any:
        """Prepend the rows of history, which for the first block are rows of missing values."""
        import pandas as pd

        if absent := [n for n in needs if n not in frame]:
            raise ValueError(f"data has no columns {absent}, which earlier blocks had")
        block = frame[needs]
        if first:
            tail = block.iloc[[0] * depth].copy()
            for name in needs:
                tail[name] = missing_like(tail[name])
        else:
            tail = self._tail
        if not len(tail):
            return block
        tail = tail.assign(**{name: as_exact(block[name], tail[name]) for name in needs})
        return pd.concat([tail, block], ignore_index=True)

    def _compute_sides(self, spec: Any, joined: Any, n: int, targets: bool) -> tuple[Any, Any]:
        """Compute regressors and targets of the last n rows."""
        sides = spec if hasattr(spec, "rhs") else None
        regressors = spec if sides is None else spec.rhs
        X = self._compute_matrix(regressors, joined, n)
        y = None
        if targets and sides is not None and hasattr(spec, "lhs"):
            y = self._compute_matrix(spec.lhs, joined, n)
        return X, y

    def _compute_matrix(self, spec: Any, joined: Any, n: int) -> Any:
        import pandas as pd

        with warnings.catch_warnings():  # of levels that were not learned: they become NaN below
            warnings.simplefilter("ignore")
            matrix = spec.get_model_matrix(joined, context=guarded_transforms(), na_action="ignore")
        out = pd.DataFrame(matrix).astype(np.float64).iloc[len(joined) - n :].copy()
        for columns, rows in find_missing(spec, joined):
            out.loc[rows[len(joined) - n :], [c for c in columns if c in out]] = np.nan
        return out
