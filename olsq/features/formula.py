"""Formulas over a stream of frames, by formulaic, with lags that reach into earlier blocks."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from typing import Any

import numpy as np

from olsq.arrays.checks import shown
from olsq.online.rows.inputs import not_fitted

# Factors that name one of these decide themselves what a missing value becomes.
FILLING = {
    "fillna",
    "ffill",
    "bfill",
    "interpolate",
    "isna",
    "isnull",
    "notna",
    "notnull",
    "isnan",
    "nan_to_num",
    "where",
    "mask",
}


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
        frame, kind, index = _to_pandas(data)
        first = not hasattr(self, "_spec")
        if first and not len(frame):
            X, y = self._sides_without_rows(frame)
            y = None if y is None else _to_caller(y, kind, index, series=True)
            return _to_caller(X, kind, index), y
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
        return _to_caller(X, kind, index), None if y is None else _to_caller(
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
        frame, kind, index = _to_pandas(data)
        frame = frame.copy()
        for name in self._needs:
            if name not in frame:
                frame[name] = np.nan
        joined = self._prepend_history(frame, self._needs, self.history_, False)
        return _to_caller(
            self._compute_sides(self._spec, joined, len(frame), False)[0], kind, index
        )

    def _learn(self, frame: Any) -> tuple[Any, int, list[str]]:
        """Return formulaic's specification after learning, the rows of history, the variables."""
        try:
            import formulaic
            from formulaic.errors import FactorEvaluationError
        except ImportError:
            raise ImportError(
                "Formula needs formulaic: pip install 'online-least-squares[formulas]'"
            ) from None
        parsed: Any = formulaic.Formula(self.formula)  # pyright: ignore[reportAbstractUsage]
        if isinstance(getattr(parsed, "lhs", None), tuple):
            raise ValueError(f"formula {self.formula!r}: join several targets with +, not |")
        depth = lag_depth(parsed) if self.history is None else self.history
        if not isinstance(depth, (int, np.integer)) or depth < 0:
            raise ValueError(f"history must be an integer >= 0, got {shown(self.history)}")
        needs, absent = _list_variables(parsed, list(frame.columns))
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
                parsed, frame[complete], context=_transforms(), na_action="ignore"
            )
        except FactorEvaluationError as error:
            raise ValueError(
                f"formula {self.formula!r}, of data with {list(frame.columns)}: {error}"
            ) from None
        for spec in _sides(learned.model_spec):
            for code, state in spec.transform_state.items():
                if _holds_nan(state):
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
        if _has_levels(_sides(spec)[-1], frame):
            X = X.iloc[:, :0]
        if y is not None and _has_levels(_sides(spec)[0], frame):
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
                tail[name] = _missing_like(tail[name])
        else:
            tail = self._tail
        if not len(tail):
            return block
        tail = tail.assign(**{name: _as_exact(block[name], tail[name]) for name in needs})
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
            matrix = spec.get_model_matrix(joined, context=_transforms(), na_action="ignore")
        out = pd.DataFrame(matrix).astype(np.float64).iloc[len(joined) - n :].copy()
        for columns, rows in _find_missing(spec, joined):
            out.loc[rows[len(joined) - n :], [c for c in columns if c in out]] = np.nan
        return out


@functools.cache
def _transforms() -> dict[str, Any]:
    """Return formulaic's transforms that standardise, for columns that may not vary."""
    from formulaic import transforms
    from formulaic.transforms.poly import poly as formulaic_poly

    @transforms.stateful_transform
    def scale(
        data: Any, center: Any = True, scale: Any = True, ddof: float = 1, _state: Any = None
    ) -> Any:
        learns = "center" not in _state
        scaled = transforms.scale(data, center, scale, ddof, _state=_state)
        if not learns or center is not True or not is_constant(data):
            return scaled
        # The mean of equal numbers is off by a rounding, and their standard deviation is that.
        _state["center"] = np.asarray(data).flat[0]
        _state["scale"] = None if scale is True else _state["scale"]
        return transforms.scale(data, center, scale, ddof, _state=_state)

    @transforms.stateful_transform
    def center(data: Any, _state: Any = None) -> Any:
        return scale(data, scale=False, _state=_state)

    @transforms.stateful_transform
    def standardize(
        x: Any, center: Any = True, rescale: Any = True, ddof: float = 0, _state: Any = None
    ) -> Any:
        return scale(x, center, rescale, ddof, _state=_state)

    @transforms.stateful_transform
    def poly(x: Any, degree: int = 1, raw: bool = False, _state: Any = None) -> Any:
        values = np.asarray(x, np.float64)
        few = np.unique(values[~np.isnan(values)]).size <= degree or is_constant(x)
        if not raw and "alpha" not in _state and few:
            raise ValueError(
                f"poly of degree {degree} needs more than {degree} different values to learn from"
            )
        return formulaic_poly(x, degree, raw, _state=_state)

    return {"scale": scale, "center": center, "standardize": standardize, "poly": poly}


def is_constant(values: Any) -> bool:
    """Test whether numbers spread by no more than the rounding errors of their mean."""
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    size = np.abs(values).max(initial=0.0)
    return bool(np.ptp(values) <= 4 * np.finfo(np.float64).eps * size) if values.size else False


def _has_levels(spec: Any, frame: Any) -> bool:
    """Test whether a side has columns by levels: of C(...), or of variables that are no numbers."""
    kinds = [kind.value for kind, _ in spec.encoder_state.values()]
    names, _ = _list_variables(spec.formula, list(frame.columns))
    return "categorical" in kinds or any(frame[n].dtype.kind not in "biuf" for n in names)


def _holds_nan(state: Any) -> bool:
    """Test whether what a transform has learned contains NaN."""
    if isinstance(state, dict):
        return any(map(_holds_nan, state.values()))
    return isinstance(state, (float, np.ndarray)) and bool(np.isnan(state).any())


def lag_depth(parsed: Any) -> int:
    """Return how many rows the formula's lags reach back; ValueError for one that looks ahead."""
    codes = [tree for tree, _, _ in _parse_factors(parsed)]
    return max((_total_lag(tree.body) for tree in codes), default=0)


def _sides(formula: Any) -> list[Any]:
    """Return the sides of a formula, or their specifications; of one side, itself."""
    return [getattr(formula, name) for name in ("lhs", "rhs") if hasattr(formula, name)] or [
        formula
    ]


def _parse_factors(parsed: Any) -> list[tuple[ast.Expression, dict[str, str], str]]:
    """Parse each factor as Python; return it, the names of its aliases for backquotes, its text."""
    factors = []
    for term in [term for side in _sides(parsed) for term in side]:
        for factor in term.factors:
            quoted: dict[str, str] = {}
            code = f"`{factor.expr}`" if factor.eval_method.value == "lookup" else factor.expr
            for name in re.findall("`([^`]*)`", code):
                code = code.replace(f"`{name}`", f"_quoted{len(quoted)}_")
                quoted[f"_quoted{len(quoted)}_"] = name
            factors.append((ast.parse(code, mode="eval"), quoted, factor.expr))
    return factors


def _list_variables(parsed: Any, columns: list[str]) -> tuple[list[str], list[str]]:
    """List the columns of a frame that a formula uses, and quoted names that are not columns.

    formulaic's own list leaves out what is inside of transforms that learn.
    """
    used, absent = set(), set()
    for tree, quoted, _ in _parse_factors(parsed):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                name = quoted.get(node.id, node.id)
                if name in columns:
                    used.add(name)
                elif node.id in quoted:
                    absent.add(name)
    return sorted(used), sorted(absent)


def _total_lag(node: ast.AST) -> int:
    """Add up the rows of nested lags at and below a node."""
    inner = max((_total_lag(child) for child in ast.iter_child_nodes(node)), default=0)
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lag"):
        return inner
    return inner + _own_lag(node)


def _own_lag(node: Any) -> int:
    """Return k of a call ``lag(x, k)``; ValueError for one that looks ahead."""
    arguments = node.args[1:2] + [keyword.value for keyword in node.keywords if keyword.arg == "k"]
    try:
        k = ast.literal_eval(arguments[0]) if arguments else 1
    except ValueError:
        k = None
    if not isinstance(k, int) or k < 0:
        raise ValueError(
            f"{ast.unparse(node)}: a lag must be a number of rows >= 0; a negative one looks ahead"
        )
    return k


def _missing_like(column: Any) -> Any:
    """Return a column of missing values with the dtype of ``column`` where it has them."""
    if column.dtype.kind in "biu":
        return column.astype(np.float64) * np.nan
    return column.where(np.zeros(len(column), bool))


def _as_exact(column: Any, above: Any = None) -> Any:
    """Return whole numbers that float64 cannot hold as pandas' nullable ones, which may be missing.

    Those of float64, ``above`` them, are converted to the dtype of the ``column``.
    """
    if column.dtype.kind not in "iu":
        return column if above is None else above
    numbers = column.dropna().tolist()
    if not _is_large(numbers):
        return column if above is None else above
    if above is None:
        return column.astype(_exact_dtype(numbers))
    return above.astype(_exact_dtype(numbers)) if above.dtype.kind == "f" else above


def _exact_dtype(numbers: list[Any]) -> str:
    """Return pandas' dtype for whole numbers; unsigned ones it compares as float64."""
    return "UInt64" if max(n for n in numbers if n is not None) >= 2**63 else "Int64"


def _is_large(numbers: list[Any]) -> bool:
    """Test whether float64 cannot hold all whole numbers as large as these, or None."""
    numbers = [number for number in numbers if number is not None]
    return bool(numbers) and max(-min(numbers), max(numbers)) > 2**53


def _find_missing(spec: Any, joined: Any) -> list[tuple[list[str], Any]]:
    """List the columns of every factor with the rows (n,) that have no value for it.

    A variable is missing, or its lag is; or it has a level that was not learned.
    """
    missing = []
    for tree, quoted, code in _parse_factors(spec.formula):
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if names & FILLING:
            continue
        encodings = [
            state for key, (_, state) in spec.encoder_state.items() if _same_code(key, code)
        ]
        levels = encodings[0].get("categories") if encodings else None
        rows = _mask_missing(tree.body, quoted, joined, levels)
        columns = [
            column
            for structure in spec.structure
            if any(_same_code(factor.expr, code) for factor in structure.term.factors)
            for column in structure.columns
        ]
        missing.append((columns, rows))
    return missing


def _same_code(one: Any, other: Any) -> bool:
    """Test whether two texts are the same factor, whatever its spaces and backquotes."""
    return re.sub(r"[\s`]", "", str(one)) == re.sub(r"[\s`]", "", str(other))


def _mask_missing(node: ast.AST, quoted: dict[str, str], joined: Any, levels: Any) -> Any:
    """Mask the rows (n,) in which an expression has a missing value, or none of ``levels``.

    Levels are those of the variable at the bottom of C(...) and lag(...); None for numbers.
    """
    if isinstance(node, ast.Name):
        name = quoted.get(node.id, node.id)
        if name not in joined:
            return np.zeros(len(joined), np.bool_)
        gone = joined[name].isna().to_numpy()
        return gone if levels is None else gone | ~joined[name].isin(levels).to_numpy()
    called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    inner = levels if called in ("C", "lag") else None
    gone = np.zeros(len(joined), np.bool_)
    for child in ast.iter_child_nodes(node):
        gone = gone | _mask_missing(child, quoted, joined, inner)
    if called == "lag":
        k = min(_own_lag(node), len(gone))
        gone = np.concatenate([np.ones(k, np.bool_), gone[: len(gone) - k]])
    return gone


def _to_pandas(data: Any) -> tuple[Any, str, Any]:
    """Convert a frame to pandas'; return it, the library of the original, and its index."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        table = data.reset_index(drop=True)
        for place, dtype in enumerate(table.dtypes):
            if dtype.kind in "iu":
                table.isetitem(place, _as_exact(table.iloc[:, place]))
        return table, "pandas", data.index
    import narwhals as nw

    frame = nw.from_native(data, eager_only=True)
    kind = "polars" if type(data).__module__.startswith("polars") else "pandas"
    columns: dict[str, Any] = {}
    for name in frame.columns:
        values = frame[name].to_list()
        if frame[name].dtype.is_integer() and _is_large(values):
            values = pd.Series(values, dtype=_exact_dtype(values))
        elif not values:
            values = np.empty(0, np.float64 if frame[name].dtype.is_numeric() else object)
        columns[name] = values
    return pd.DataFrame(columns), kind, None


def _to_caller(frame: Any, kind: str, index: Any, series: bool = False) -> Any:
    """Convert a pandas frame to the caller's library; return a single target as a series."""
    if kind == "polars":
        import polars as pl

        converted = pl.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
        return converted.to_series() if series and converted.width == 1 else converted
    frame = frame.set_axis(index, axis=0) if index is not None else frame.reset_index(drop=True)
    return frame.iloc[:, 0] if series and frame.shape[1] == 1 else frame
