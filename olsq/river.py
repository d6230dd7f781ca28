"""olsq's recursive least squares as a regressor of river: dictionaries in, one row at a time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array, real_number, refuse_repeated_names
from olsq.online import RecursiveLeastSquares as Estimator
from olsq.online.estimators.growing import with_features
from olsq.online.rows.frames import check_same_index

if TYPE_CHECKING:
    import pandas as pd

try:
    from river import base
except ImportError as error:  # pragma: no cover - exercised by hand, without river
    raise ImportError("olsq.river needs river: pip install river") from error


class RecursiveLeastSquares(base.MiniBatchRegressor):
    """:class:`olsq.RecursiveLeastSquares` with river's interface.

    Features are found by name.  A feature that a row does not have is 0 in that row, as everywhere
    in river; one that appears late was 0 in all rows before, exactly.

    Parameters
    ----------
    forget : float, default 1
        Forgetting factor in [0, 1].
    half_life : float, str or timedelta, optional
        Number of samples, or length of time ("30D"), after which a weight has halved; instead of
        ``forget``.
    ridge : float, default 0
    fit_intercept : bool, default True
    method : {"auto", "covariance", "sqrt", "information"}
    missing : {"skip", "raise"}
        All as in :class:`olsq.RecursiveLeastSquares`.
    time : hashable, optional
        The key under which rows have their time, for a half-life that is a length of time: a date,
        or a number in the unit of ``half_life``.  It is no feature.

    Attributes
    ----------
    estimator : olsq.RecursiveLeastSquares
        The estimator behind it, with its standard errors, intervals and ``save``.
    features : list
        Names of its columns, in the order in which they appeared.
    weights : dict
        Coefficients by name.

    Notes
    -----
    O(d^2) time per row, and O(d^3) for a row that brings new names.  Passes river's
    ``check_estimator``.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from olsq.river import RecursiveLeastSquares
    >>> model = preprocessing.StandardScaler() | RecursiveLeastSquares(forget=0.99, ridge=1e-3)
    >>> error = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> round(error.get(), 2)
    0.62
    """

    def __init__(
        self,
        forget: float = 1.0,
        half_life: Any = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        method: str = "auto",
        missing: str = "skip",
        time: Hashable | None = None,
    ) -> None:
        self.forget = forget
        self.half_life = half_life
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.method = method
        self.missing = missing
        self.time = time
        self.estimator = Estimator(
            forget=forget,
            half_life=half_life,
            ridge=ridge,
            fit_intercept=fit_intercept,
            method=method,
            missing=missing,
        )
        self._columns: dict[Hashable, int] = {}

    @property
    def features(self) -> list[Hashable]:
        return list(self._columns)

    @property
    def weights(self) -> dict[Hashable, float]:
        if not self._fitted:
            return {}
        return dict(zip(self._columns, self.estimator.coef_.tolist(), strict=True))

    @property
    def intercept(self) -> float:
        return float(self.estimator.intercept_) if self._fitted else 0.0

    @property
    def _fitted(self) -> bool:
        return self.estimator.__sklearn_is_fitted__()

    def learn_one(self, x: Mapping[Hashable, Any], y: float, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Numbers by name.
        y : number
        w : number >= 0, default 1
            Weight of the row.

        Raises
        ------
        ValueError
            For a feature, y or w that is no number, a time that is missing or goes back.
        """
        target, times = _target(y), None
        if self.time is not None:
            if self.time not in x:
                raise ValueError(f"x has no time under the key {self.time!r}, which time= names")
            times = [x[self.time]]
        columns = self._with_names(x)
        row = _row(x, columns)
        if not row.size:
            raise ValueError("x holds no feature: give at least one name with a number")
        estimator = self._widened(columns)
        weights = None if type(w) is float and w == 1.0 else [w]
        estimator.partial_fit(row[None], np.array([target]), weights, times=times)
        self.estimator, self._columns = estimator, columns

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Predict one row; 0 before the first."""
        if not self._fitted:
            return 0.0
        return float(self.estimator.predict(_row(x, self._columns)[None])[0])

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows of a data frame, in order.

        Raises
        ------
        ValueError
            As :meth:`learn_one`; for two columns of one name, and rows of X and y that are not in
            line.
        """
        times = None
        if y is None:
            raise ValueError("y must hold a number for each row of X, got None")
        check_same_index(X=X, y=y)
        refuse_repeated_names(X, "X")
        if self.time is not None:
            if self.time not in X.columns:
                raise ValueError(f"X has no column {self.time!r}, which time= names")
            X, times = X.drop(columns=[self.time]), X[self.time]
        columns = self._with_names(X.columns)
        rows = np.zeros((len(X), len(columns)))
        rows[:, [columns[name] for name in X.columns]] = real_array(X, "X")
        estimator = self._widened(columns)
        estimator.partial_fit(rows, y, times=times)
        self.estimator, self._columns = estimator, columns

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Predict the rows of a data frame, with its index."""
        import pandas as pd

        if not self._fitted or not len(X):
            return pd.Series(np.zeros(len(X)), index=X.index, name="y")
        refuse_repeated_names(X, "X")
        rows = np.zeros((len(X), len(self._columns)))
        for name in X.columns:
            if name in self._columns:
                rows[:, self._columns[name]] = real_array(X[name], f"X[{name!r}]")
        return pd.Series(self.estimator.predict(rows), index=X.index, name="y")

    def _with_names(self, names: Any) -> dict[Hashable, int]:
        new = [name for name in names if name not in self._columns and not self._is_time(name)]
        if not new:
            return self._columns
        return self._columns | {name: len(self._columns) + i for i, name in enumerate(new)}

    def _is_time(self, name: Hashable) -> bool:
        return self.time is not None and name == self.time

    def _widened(self, columns: dict[Hashable, int]) -> Estimator:
        """Return the estimator with a coefficient for each of the columns."""
        if not self._fitted or len(columns) == len(self._columns):
            return self.estimator
        return with_features(self.estimator, len(columns))


def _row(x: Mapping[Hashable, Any], columns: dict[Hashable, int]) -> np.ndarray:
    row = np.zeros(len(columns))
    for name, value in x.items():
        if name in columns:
            try:
                row[columns[name]] = real_number(value, "x")
            except (TypeError, ValueError):
                raise ValueError(
                    f"x[{name!r}] must be a number, got {shown(value)}; encode it before, for "
                    "example with river's OneHotEncoder"
                ) from None
    return row


def _target(y: Any) -> float:
    """Return the target of a row; ValueError for what is no number (NaN is a missing one)."""
    try:
        if y is not None:
            return real_number(y, "y")
    except (TypeError, ValueError):
        pass
    raise ValueError(f"y must be a number, got {shown(y)}")
