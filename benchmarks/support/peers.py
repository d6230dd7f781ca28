"""One adapter per library: the same discounted least-squares problem, posed in its own terms.

A :class:`Sequential` filter is advanced by rows and read out at any time; a whole-array one gives
its whole coefficient path. All of them minimise (with zero starting coefficients, no intercept)

    sum_i forget^(n-i) (y_i - x_i.theta)^2 + forget^n ridge |theta|^2,

except where an adapter says otherwise. Libraries are imported on construction, so that the absence
of one only removes its rows.
"""

from __future__ import annotations

import importlib.util
from typing import Protocol

import numpy as np
from numba import njit


class Sequential(Protocol):
    """A filter that takes rows and gives its coefficients."""

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        """Advance over all rows."""
        ...

    def coef(self) -> np.ndarray:
        """Coefficients after the rows seen so far, shape (d,)."""
        ...


class WholeArray(Protocol):
    """A method that only takes a whole array."""

    def path(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Coefficients after each row, shape (n, d)."""
        ...


@njit(cache=True, error_model="numpy")
def _textbook_loop(X, y, P, theta, forget, fresh):  # pragma: no cover - compiled
    """``P = (P - g (x'P)) / forget``, with ``x'P`` computed or taken to be ``(P x)'``."""
    n, d = X.shape
    for t in range(n):
        x = X[t]
        Px = P @ x
        gain = Px / (forget + x @ Px)
        error = y[t] - x @ theta
        row = x @ P if fresh else Px
        for i in range(d):
            theta[i] += gain[i] * error
            for j in range(d):
                P[i, j] = (P[i, j] - gain[i] * row[j]) / forget


class Textbook:
    """The textbook update in Numba, with both products of ``g (x'P)`` computed."""

    fresh = True

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        self.P = np.eye(d, dtype=dtype) / dtype(ridge)
        self.theta = np.zeros(d, dtype)
        self.forget = dtype(forget)

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        _textbook_loop(np.ascontiguousarray(X), y, self.P, self.theta, self.forget, self.fresh)

    def coef(self) -> np.ndarray:
        return self.theta


class TextbookReuse(Textbook):
    """The same with ``(P x)'`` in place of ``x'P``, "because P is symmetric"."""

    fresh = False


class NumpyLoop:
    """The update a careful user writes in NumPy: symmetric rank-one, one row at a time."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        self.P = np.eye(d, dtype=dtype) / dtype(ridge)
        self.theta = np.zeros(d, dtype)
        self.forget = dtype(forget)

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        P, theta, forget = self.P, self.theta, self.forget
        for x, target in zip(X, y, strict=True):
            Px = P @ x
            scale = forget + x @ Px
            theta += Px * ((target - x @ theta) / scale)
            h = Px / np.sqrt(scale)
            P -= np.outer(h, h)
            P /= forget

    def coef(self) -> np.ndarray:
        return self.theta


class Padasip:
    """``padasip.filters.FilterRLS``; float64 whatever it is given."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        import padasip

        self.filter = padasip.filters.FilterRLS(d, mu=forget, eps=ridge, w="zeros")

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        adapt = self.filter.adapt
        for x, target in zip(X, y, strict=True):
            adapt(target, x)

    def coef(self) -> np.ndarray:
        return self.filter.w


class River:
    """``river.linear_model.BayesianLinearRegression``; its ``smoothing`` is the forgetting factor.

    ``beta`` carries the ridge: river starts both its precision and its covariance at
    ``1 / alpha``, which is consistent for ``alpha=1`` only. With smoothing s every row enters with
    weight ``(1 - s) beta``.
    """

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        from river.linear_model import BayesianLinearRegression

        self.names = range(d)
        if forget == 1.0:
            self.model = BayesianLinearRegression(beta=1 / ridge)
        else:
            beta = 1 / ((1 - forget) * ridge)
            self.model = BayesianLinearRegression(beta=beta, smoothing=forget)

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        learn, names = self.model.learn_one, self.names
        for x, target in zip(X.tolist(), y.tolist(), strict=True):
            learn(dict(zip(names, x, strict=True)), target)

    def coef(self) -> np.ndarray:
        # predict_one is the only public way to the coefficients: one unit vector at a time
        unit = np.eye(len(self.names)).tolist()
        return np.array(
            [self.model.predict_one(dict(zip(self.names, e, strict=True))) for e in unit]
        )


class Filterpy:
    """``filterpy.kalman.KalmanFilter`` with identity dynamics and fading memory (Joseph form)."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        from filterpy.kalman import KalmanFilter

        self.filter = KalmanFilter(dim_x=d, dim_z=1)
        self.filter.x = np.zeros((d, 1))
        self.filter.P = np.eye(d) / ridge
        self.filter.Q = np.zeros((d, d))
        self.filter.R = np.eye(1)
        self.filter.alpha = 1 / np.sqrt(forget)

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        kalman = self.filter
        for x, target in zip(X[:, None, :], y[:, None, None], strict=True):
            kalman.predict()
            kalman.update(target, H=x)

    def coef(self) -> np.ndarray:
        return self.filter.x[:, 0]


class Statsmodels:
    """``statsmodels`` RecursiveLS: no forgetting and no ridge (a diffuse start instead)."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        if forget != 1.0:
            raise ValueError("RecursiveLS has no forgetting")

    def path(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        from statsmodels.regression.recursive_ls import RecursiveLS

        result = RecursiveLS(y, X).filter()
        return result.recursive_coefficients.filtered.T


class PolarsOLS:
    """``polars_ols`` recursive least squares; forgetting is given as a half-life."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        self.half_life = None if forget == 1.0 else float(np.log(0.5) / np.log(forget))
        self.covariance = 1 / ridge
        self.names = [f"x{i}" for i in range(d)]

    def frame(self, X: np.ndarray, y: np.ndarray):
        """The columns as polars holds them: making them is not part of the method's time."""
        import polars as pl

        columns = {name: X[:, i] for i, name in enumerate(self.names)}
        return pl.DataFrame({**columns, "y": y})

    def path_of_frame(self, frame):
        """Struct column of coefficients."""
        import polars as pl
        import polars_ols  # noqa: F401  (registers the namespace)

        expression = pl.col("y").least_squares.rls(
            *self.names,
            half_life=self.half_life,
            initial_state_covariance=self.covariance,
            mode="coefficients",
        )
        return frame.select(expression)

    def path(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.path_of_frame(self.frame(X, y)).unnest("coefficients").to_numpy()


class Olsq:
    """``olsq.RecursiveLeastSquares``."""

    def __init__(self, d: int, forget: float, ridge: float, dtype: type = np.float64) -> None:
        import olsq

        self.model = olsq.RecursiveLeastSquares(forget=forget, ridge=ridge, fit_intercept=False)

    def run(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model.partial_fit(X, y)

    def coef(self) -> np.ndarray:
        return self.model.coef_


PEERS: dict[str, type] = {
    "textbook": Textbook,
    "textbook, P x reused": TextbookReuse,
    "padasip": Padasip,
    "river": River,
    "filterpy": Filterpy,
    "statsmodels": Statsmodels,
    "polars-ols": PolarsOLS,
}
OLSQ: dict[str, type] = {"olsq": Olsq}
_MODULES = {"polars-ols": "polars_ols"}


def available(name: str) -> bool:
    """Whether the library behind an adapter can be imported."""
    if name.startswith("textbook"):
        return True
    return importlib.util.find_spec(_MODULES.get(name, name.split()[0])) is not None
