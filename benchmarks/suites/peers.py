"""Other libraries on the same rows in the same process; skipped, with the reason, when absent."""

from __future__ import annotations

from collections.abc import Callable

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


class ClassHead:
    """A head on one-hot targets, learnt 256 rows a call, over accumulated moments by hand.

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
