"""Check the arguments of a regression when its expression is built, before any data are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from olsq.arrays.checks import check_choice, check_flag, shown
from olsq.forgetting.base import Forgetting
from olsq.online import RecursiveLeastSquares, coefficient_path
from olsq.polars.regression import OUTPUTS, Regression

MISSING = ("skip", "raise")


def build(target: pl.Expr, arguments: dict[str, Any], *, one_fit: bool) -> pl.Expr:
    """Return the expression of a regression of ``target``, from a method's arguments by name.

    ``one_fit`` asks for one fit of all rows, otherwise for the fit after every row.  Besides
    ``self``, ``regressors`` and ``output`` the arguments are those of ``coefficient_path`` (of
    ``RecursiveLeastSquares`` for a whole fit), in which names and expressions stand for columns.

    Raises ValueError or TypeError for arguments that no data could make right.
    """
    options = {name: value for name, value in arguments.items() if name != "self"}
    regressors, output = options.pop("regressors"), options.pop("output")
    check_choice(output, "output", OUTPUTS)
    check_choice(options["missing"], "missing", MISSING)
    _check_single(target, "the target")
    has_intercept = check_flag("fit_intercept", options["fit_intercept"])
    expressions, names = _parse_regressors(regressors, has_intercept)
    options, columns = _split_options(options)
    _try_on_two_rows(len(names), options, columns, one_fit)
    regression = Regression(names, output, options, tuple(columns), one_fit)
    # One list per column and group: the function is called once for all groups of a query, and
    # is elementwise on these lists, which is what lets Polars call it so.
    inputs = [*expressions, *columns.values()]
    lists = [target.implode(), *(e.implode().alias(f"_olsq_{i}") for i, e in enumerate(inputs))]
    expression = pl.struct(lists).map_batches(
        regression, return_dtype=regression.return_dtype, is_elementwise=True
    )
    return expression if regression.returns_scalar else expression.explode()


def _parse_regressors(
    regressors: tuple[Any, ...], fit_intercept: bool
) -> tuple[list[pl.Expr], tuple[str, ...]]:
    """Return the regressors as expressions, and their names."""
    if len(regressors) == 1 and isinstance(regressors[0], (list, tuple)):
        regressors = tuple(regressors[0])
    if not regressors:
        raise ValueError("give at least one regressor, a column's name or an expression")
    expressions = [_as_expression(r, "regressors") for r in regressors]
    names = tuple(_check_single(e, f"regressor {i}") for i, e in enumerate(expressions))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"two regressors are named {twice[0]!r}: the names are the fields of the result, so "
            "rename one with .alias()"
        )
    if fit_intercept and "intercept" in names:
        raise ValueError(
            "a regressor is named 'intercept', the field of the fitted one: rename it with "
            ".alias(), or leave fit_intercept=False"
        )
    return expressions, names


def _as_expression(value: Any, name: str) -> pl.Expr:
    if isinstance(value, str):
        return pl.col(value)
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, pl.Series):
        raise TypeError(
            f"{name} must be columns' names or expressions, got a Series: put it into "
            "the frame first, or use pl.lit(series)"
        )
    raise TypeError(f"{name} must be columns' names or expressions, got {shown(value)}")


def _check_single(expression: pl.Expr, what: str) -> str:
    """Return the name of an expression that is one column; refuse what may be several."""
    several = ValueError(
        f"{what} must be one column with a name that is known without the frame, got "
        f"{expression}: name the columns one by one, or give it a name with .alias()"
    )
    try:
        if expression.meta.has_multiple_outputs():
            raise several
        return expression.meta.output_name()
    except pl.exceptions.ComputeError:  # selectors, pl.all(), pl.nth(0), pl.col("a", "b")
        raise several from None


def _split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, pl.Expr]]:
    """Split options into those that are the same for all rows and those that are columns."""
    columns = {}
    for name in ("sample_weight", "times"):
        if options.get(name) is not None:
            columns[name] = _as_expression(options[name], name)
    if isinstance(options.get("forget"), pl.Expr):
        columns["forget"] = options["forget"]
    for name, expression in columns.items():
        _check_single(expression, name)
    same = {k: v for k, v in options.items() if k not in (*columns, "sample_weight")}
    return same, columns


def _try_on_two_rows(
    d: int, options: dict[str, Any], columns: dict[str, pl.Expr], one_fit: bool
) -> None:
    """Raise the package's own errors for these options, by using them on two rows."""
    forget = options.get("forget")
    if forget is not None and not isinstance(forget, Forgetting) and np.ndim(forget) > 0:
        raise ValueError(
            "forget must be a number, a strategy of olsq.forgetting or an expression, got an array "
            "or list: factors of rows are a column"
        )
    X, y = np.eye(2, d), np.ones(2)
    if one_fit:
        RecursiveLeastSquares(**options).fit(X, y)
        return
    tried = dict(options)
    if "times" in columns:
        lengths = (options.get("half_life"), options.get("window"))
        dates = any(not isinstance(n, (int, float, np.number, type(None))) for n in lengths)
        tried["times"] = np.array([0, 1], "datetime64[ns]") if dates else np.array([0.0, 1.0])
    coefficient_path(X, y, statistics=False, **tried)
