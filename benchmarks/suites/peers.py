"""Other libraries on the same rows in the same process; skipped, with the reason, when absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .common import FORGET, RIDGE, library, need, ratio, regression, relative_error


def padasip(X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    filters = library("padasip").filters

    def run():
        model = filters.FilterRLS(X.shape[1], mu=FORGET, eps=RIDGE, w="zeros")
        for x, target in zip(X, y, strict=True):
            model.adapt(target, x)
        return model.w

    return run


def river(X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    library("river")
    from river.linear_model import BayesianLinearRegression

    rows = [dict(enumerate(x)) for x in X.tolist()]

    def run():
        model = BayesianLinearRegression(beta=1 / ((1 - FORGET) * RIDGE), smoothing=FORGET)
        for x, target in zip(rows, y.tolist(), strict=True):
            model.learn_one(x, target)
        return model

    return run


def filterpy(X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    library("filterpy")
    from filterpy.kalman import KalmanFilter

    d = X.shape[1]

    def run():
        kalman = KalmanFilter(dim_x=d, dim_z=1)
        kalman.P, kalman.Q, kalman.R = np.eye(d) / RIDGE, np.zeros((d, d)), np.eye(1)
        kalman.alpha = 1 / np.sqrt(FORGET)
        for x, target in zip(X[:, None, :], y[:, None, None], strict=True):
            kalman.predict()
            kalman.update(target, H=x)
        return kalman.x

    return run


def numpy_loop(X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    def run():
        P, theta = np.eye(X.shape[1]) / RIDGE, np.zeros(X.shape[1])
        for x, target in zip(X, y, strict=True):
            Px = P @ x
            scale = FORGET + x @ Px
            theta += Px * ((target - x @ theta) / scale)
            h = Px / np.sqrt(scale)
            P = (P - np.outer(h, h)) / FORGET
        return theta

    return run


LOOPS = {"NumPy loop": numpy_loop, "padasip": padasip, "river": river, "filterpy": filterpy}


class Loops:
    """Processor time of libraries that take a row at a time over ``partial_fit`` of all rows."""

    params = (list(LOOPS), [4, 64])
    param_names = ("peer", "d")
    timeout = 600

    def setup(self, peer: str, d: int) -> None:
        (kind,) = need("olsq.RecursiveLeastSquares")
        X, y = regression(300, d)
        self.theirs = LOOPS[peer](X, y)
        options = {"forget": FORGET, "ridge": RIDGE, "fit_intercept": False}
        self.ours = lambda: kind(**options).partial_fit(X, y).coef_

    def track_speedup(self, peer: str, d: int) -> float:
        return ratio(self.theirs, self.ours)

    track_speedup.unit = "times as long as olsq"


def polars(X: np.ndarray, y: np.ndarray, rolling: bool) -> Callable[[], object]:
    pl = library("polars")
    library("polars_ols", "polars-ols")
    names = [f"x{i}" for i in range(X.shape[1])]
    frame = pl.DataFrame({n: X[:, i] for i, n in enumerate(names)} | {"y": y})
    least_squares = pl.col("y").least_squares
    if rolling:
        expression = least_squares.rolling_ols(*names, window_size=250, mode="coefficients")
    else:
        half_life = float(np.log(0.5) / np.log(FORGET))
        expression = least_squares.rls(
            *names,
            half_life=half_life,
            initial_state_covariance=1 / RIDGE,
            mode="coefficients",
        )
    return lambda: frame.select(expression)


def statsmodels(X: np.ndarray, y: np.ndarray, rolling: bool) -> Callable[[], object]:
    library("statsmodels")
    if rolling:
        from statsmodels.regression.rolling import RollingOLS

        return lambda: RollingOLS(y, X, window=250).fit(params_only=True).params
    from statsmodels.regression.recursive_ls import RecursiveLS

    return lambda: RecursiveLS(y, X).filter().recursive_coefficients.filtered


PATHS = {"polars-ols": polars, "statsmodels": statsmodels}


class Paths:
    """Processor time of a peer's whole path over ``coefficient_path``.

    statsmodels' recursion has no forgetting; it is held against a path that does not forget.
    """

    params = (list(PATHS), [4, 16], ["recursive", "rolling"])
    param_names = ("peer", "d", "kind")
    timeout = 600

    def setup(self, peer: str, d: int, kind: str) -> None:
        (path,) = need("olsq.coefficient_path")
        X, y = regression(2000, d)
        self.theirs = PATHS[peer](X, y, kind == "rolling")
        forget = {"forget": FORGET if peer == "polars-ols" else 1.0, "ridge": RIDGE}
        options = {"window": 250} if kind == "rolling" else forget
        self.ours = lambda: path(X, y, **options)

    def track_speedup(self, peer: str, d: int, kind: str) -> float:
        return ratio(self.theirs, self.ours)

    track_speedup.unit = "times as long as olsq"


def statistics_of_statsmodels(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    library("statsmodels")
    from statsmodels.regression.rolling import RollingOLS

    def run():
        fit = RollingOLS(y, X, window=250).fit(use_t=True)
        return fit.params, fit.rsquared, fit.tvalues, fit.pvalues

    return run


def fading_of_polars_ds(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    pl, pds = library("polars"), library("polars_ds", "polars-ds")
    names = [f"x{i}" for i in range(X.shape[1])]
    frame = pl.DataFrame({n: X[:, i] for i, n in enumerate(names)} | {"y": y})
    found = pds.rolling_lin_reg(*names, target="y", window_size=250, half_life=50.0)
    return lambda: (np.array(frame.select(found.alias("c"))["c"].struct["coeffs"].to_list()[249:]),)


class Windows:
    """Windows with the statistics of every row over statsmodels, and fading ones over polars-ds."""

    params = (["statistics", "fading"], [4, 16])
    param_names = ("what", "d")
    timeout = 600

    def setup(self, what: str, d: int) -> None:
        path, _ = need("olsq.coefficient_path", "olsq.CoefficientPath.r_squared")
        X, y = regression(2000, d)
        peers = {"statistics": statistics_of_statsmodels, "fading": fading_of_polars_ds}
        self.theirs = peers[what](X, y)

        def ours():
            if what == "fading":
                return (path(X, y, window=250, half_life=50, statistics=False).coef[249:],)
            found = path(X, y, window=250)
            return found.coef, found.r_squared, found.tvalues, found.pvalues

        self.ours = ours

    def track_speedup(self, what: str, d: int) -> float:
        return ratio(self.theirs, self.ours)

    track_speedup.unit = "times as long as olsq"

    def track_difference(self, what: str, d: int) -> float:
        return max(
            relative_error(one[-1500:], other[-1500:])
            for one, other in zip(self.ours(), self.theirs(), strict=True)
        )

    track_difference.unit = "relative"


class Panels:
    """Fixed effects with errors clustered by group, rows and all, over linearmodels' PanelOLS."""

    params = ([100, 5000],)
    param_names = ("groups",)
    timeout = 600

    def setup(self, groups: int) -> None:
        kind, _ = need("olsq.GroupedLeastSquares", "olsq.GroupedLeastSquares.within")
        pd = library("pandas")
        panel = library("linearmodels").PanelOLS
        label, date = np.repeat(np.arange(groups), 20), np.tile(np.arange(20), groups)
        X, y = regression(label.size, 4)
        frame = pd.DataFrame(X).assign(y=y, group=label, date=date).set_index(["group", "date"])
        options = {"cov_type": "clustered", "cluster_entity": True, "group_debias": True}

        def theirs():
            fit = panel(frame["y"], frame[[0, 1, 2, 3]], entity_effects=True).fit(**options)
            return fit.std_errors.to_numpy()

        self.theirs = theirs
        self.ours = lambda: kind().fit(X, y, by=label).within(cov="cluster").stderr

    def track_speedup(self, groups: int) -> float:
        return ratio(self.theirs, self.ours)

    track_speedup.unit = "times as long as olsq"

    def track_difference(self, groups: int) -> float:
        return relative_error(self.ours(), self.theirs())

    track_difference.unit = "relative"


def walking(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose coefficients are random walks, every second one constant."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    steps = 0.1 * rng.standard_normal((n, d)) * (np.arange(d) % 2 == 0)
    return X, (X * np.cumsum(steps, axis=0)).sum(1) + rng.standard_normal(n)


def state_space(X: np.ndarray, y: np.ndarray) -> Any:
    """statsmodels' state-space model of coefficients that are random walks.

    Parameters are the variance of the noise and those of the steps.
    """
    library("statsmodels")
    from statsmodels.tsa.statespace.mlemodel import MLEModel

    class RandomWalks(MLEModel):
        def __init__(self) -> None:
            super().__init__(y, k_states=X.shape[1], initialization="diffuse")
            self.ssm["design"] = X.T[None]
            self.ssm["transition"] = self.ssm["selection"] = np.eye(X.shape[1])

        @property
        def start_params(self) -> np.ndarray:
            return np.r_[np.var(y) / 2, np.full(X.shape[1], 0.01)]

        def transform_params(self, unconstrained: np.ndarray) -> np.ndarray:
            return unconstrained**2

        def untransform_params(self, constrained: np.ndarray) -> np.ndarray:
            return np.sqrt(constrained)

        def update(self, params: np.ndarray, **options: Any) -> None:
            params = super().update(params, **options)
            self.ssm["obs_cov", 0, 0] = params[0]
            self.ssm["state_cov"] = np.diag(params[1:])

    return RandomWalks()


class Drift:
    """Processor time of statsmodels' maximum likelihood over ``time_varying``, and its error."""

    params = ([500, 2000], [2, 4])
    param_names = ("n", "d")
    timeout = 600

    def setup(self, n: int, d: int) -> None:
        (fit,) = need("olsq.time_varying")
        X, y = walking(n, d)
        self.model = state_space(X, y)
        self.ours = lambda: fit(X, y, fit_intercept=False)

    def track_speedup(self, n: int, d: int) -> float:
        theirs = lambda: self.model.fit(disp=False, maxiter=500)  # noqa: E731
        return ratio(theirs, self.ours)

    track_speedup.unit = "times as long as olsq"

    def track_error(self, n: int, d: int) -> float:
        """Of the smoothed coefficients, from statsmodels' at the same parameters."""
        fit = self.ours()
        theirs = self.model.smooth(fit.noise * np.r_[1.0, fit.drift])
        return relative_error(fit.coef, theirs.smoothed_state.T)

    track_error.unit = "relative"


class ClassHead:
    """A head on one-hot targets, learned 256 rows per call, over accumulated moments by hand.

    What people write for the last layer of a network: ``X.T @ X`` and ``X.T @ Y`` of every call,
    and one solve at the end.
    """

    params = ([512, 2048], [10])
    param_names = ("features", "classes")
    timeout = 600

    def setup(self, d: int, classes: int) -> None:
        (kind,) = need("olsq.RecursiveLeastSquares")
        rng = np.random.default_rng(0)
        blocks = rng.standard_normal((8, 256, d))
        targets = np.eye(classes)[rng.integers(classes, size=(8, 256))]

        def ours():
            head = kind(method="information", residuals=False, ridge=1.0, fit_intercept=False)
            for X, Y in zip(blocks, targets, strict=True):
                head.partial_fit(X, Y)
            return head.coef_

        def by_hand():
            gram, cross = np.eye(d), np.zeros((d, classes))
            for X, Y in zip(blocks, targets, strict=True):
                gram += X.T @ X
                cross += X.T @ Y
            return np.linalg.solve(gram, cross).T

        self.ours, self.by_hand = ours, by_hand

    def track_ratio(self, d: int, classes: int) -> float:
        return ratio(self.ours, self.by_hand)

    track_ratio.unit = "times as long as by hand"

    def track_difference(self, d: int, classes: int) -> float:
        return relative_error(self.ours(), self.by_hand())

    track_difference.unit = "relative"
