"""Fill the cache of kernels before anybody waits for it: `olsq.compile_kernels`, `olsq compile`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq import first_call
from olsq.kernel_cache import cache_folders

Step = tuple[str, Callable[[], Any]]


class Compiled(NamedTuple):
    """Folder of the kernels on disk and number of its files, after :func:`compile_kernels`.

    Attributes
    ----------
    folder : Path
        Where the kernels are.
    files : int
        How many files of code the folder holds now.
    """

    folder: Path
    files: int


def compile_kernels(
    *parts: str, progress: Callable[[str, int, int], None] | None = None
) -> Compiled:
    """Compile the kernels of some parts of the package, and keep them on disk.

    For an image of a container, or a system whose files cannot be written later: kernels that are
    in the cache are loaded in tenths of a second, by every user who can read it.

    Parameters
    ----------
    *parts : str
        Of "streams", "windows", "variants", "banks", "sequences", "compiled" and "polars"; all that
        are installed by default.
    progress : callable, optional
        Called with what is compiled next, the number of steps done and that of all.

    Returns
    -------
    Compiled

    Raises
    ------
    ValueError
        For another part.
    OSError
        If no folder can be written: set NUMBA_CACHE_DIR to one.
    ImportError
        For "polars" without Polars.

    Notes
    -----
    Runs the calls that users make, on a few rows each: what is compiled depends on the types of the
    data, and these are the usual ones, float64 and for sequences float32.  All parts took two
    minutes of processor time (Python 3.11); seconds where they are compiled already.

    Examples
    --------
    >>> import olsq
    >>> olsq.compile_kernels("streams").files > 0  # doctest: +SKIP
    True
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"parts are {', '.join(PARTS)}; got {unknown[0]!r}")
    folder = cache_folders("olsq").written
    if folder is None:
        raise OSError(
            "no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one that can"
        )
    first_call.say_nothing()
    steps = [step for part in parts or _installed() for step in PARTS[part]()]
    with np.errstate(all="ignore"):
        for done, (name, call) in enumerate(steps):
            if progress is not None:
                progress(name, done, len(steps))
            call()
    if progress is not None:
        progress("", len(steps), len(steps))
    return Compiled(folder, sum(1 for _ in folder.rglob("*.nbc")))


def _installed() -> list[str]:
    return [p for p in PARTS if p != "polars" or importlib.util.find_spec("polars") is not None]


def _rows(columns: int = 3, targets: int = 0) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    shape = (40, targets) if targets else 40
    return rng.standard_normal((40, columns)), rng.standard_normal(shape)


def _dependent(X: NDArray) -> NDArray:
    """Rows of which some leave coefficients undetermined, at first and later."""
    X = X.copy()
    X[:, 2] = X[:, 1]
    X[:10], X[30:] = 0.0, np.eye(10, X.shape[1])
    return X


def _use(estimator: Any, X: NDArray, y: NDArray) -> None:
    """Learn, read and go on as users do."""
    estimator.fit(X[:20], y[:20])
    estimator.partial_fit(X[20:30], y[20:30], sample_weight=np.full(10, 2.0))
    estimator.step(X[30], y[30])
    estimator.predict(X)
    estimator.predict(X[:1])
    assert np.all(np.isfinite(estimator.coef_))


def _streams() -> Iterator[Step]:
    forgetting = olsq.forgetting
    (X, y), (_, Y) = _rows(), _rows(targets=2)
    for ridge in (0.0, 1e-3):
        model = olsq.RecursiveLeastSquares(ridge=ridge, forget=0.99)
        yield f"RecursiveLeastSquares, ridge {ridge}", lambda model=model: _use(model, X, y)
    fixed = olsq.RecursiveLeastSquares(ridge=1e-3, ridge_mode="fixed", forget=0.99)
    yield "a fixed ridge", lambda: _use(fixed, X, y)
    yield "paths with it", lambda: fixed.partial_fit_path(X, y).stderr
    several = olsq.RecursiveLeastSquares()
    yield "several targets", lambda: _use(several, X, Y)

    def inference() -> None:
        model = olsq.RecursiveLeastSquares(forget=0.99, cov="sandwich").fit(X, y)
        for estimator in (model, olsq.RecursiveLeastSquares().fit(X, y)):
            estimator.predict(X, return_std=True)
            str(estimator.summary())
            olsq.loads(estimator.to_bytes()).partial_fit(X, y)
        first = olsq.RecursiveLeastSquares().fit(X, y)
        olsq.merge(first, first)

    yield "standard errors, files, merging", inference
    yield "paths", lambda: olsq.coefficient_path(X, y, fit_intercept=True).stderr
    yield "dependent rows", lambda: olsq.RecursiveLeastSquares().fit(_dependent(X), y).summary()
    for name, forget in {
        "RandomWalk": forgetting.RandomWalk(0.1),
        "Variable": forgetting.Variable(20.0),
        "ResetOnBreak": forgetting.ResetOnBreak(0.99),
    }.items():
        model = olsq.RecursiveLeastSquares(forget=forget)
        yield name, lambda model=model: _use(model, X, y)
    yield "time_varying", lambda: olsq.time_varying(X, y)


def _windows() -> Iterator[Step]:
    (X, y), (_, Y) = _rows(), _rows(targets=2)
    yield "RollingLeastSquares", lambda: _use(olsq.RollingLeastSquares(10), X, y)
    yield "several targets", lambda: _use(olsq.RollingLeastSquares(10), X, Y)
    yield (
        "paths over windows",
        lambda: olsq.coefficient_path(X, y, window=10, fit_intercept=True).stderr,
    )
    yield "dependent rows", lambda: _use(olsq.RollingLeastSquares(10), _dependent(X), y)
    yield "fewer rows than coefficients", lambda: _use(olsq.RollingLeastSquares(3), X, y)
    times = np.datetime64("2020-01-01") + np.arange(40)
    yield "windows in time", lambda: olsq.coefficient_path(X, y, window="10D", times=times)


def _variants() -> Iterator[Step]:
    X, y = _rows()
    for name, model in {
        "RobustLeastSquares": olsq.RobustLeastSquares(),
        "ConstrainedLeastSquares": olsq.ConstrainedLeastSquares(bounds=(0, None)),
        "OnlineElasticNet": olsq.OnlineElasticNet(),
        "TotalLeastSquares": olsq.TotalLeastSquares(),
    }.items():
        yield name, lambda model=model: _use(model, X, y)
    yield "KernelLeastSquares", lambda: olsq.KernelLeastSquares().fit(X, y).predict(X)


def _banks() -> Iterator[Step]:
    X, y = _rows()
    bank = olsq.FilterBank(2, forget=0.99)

    def learn() -> None:
        bank.fit(np.stack([X, X]), np.stack([y, y]))
        bank.step(X[:2], y[:2])
        bank.step(X[:1], y[:1], which=[1])
        bank.predict(X[:2])
        bank.leverage(X[:2])

    yield "FilterBank", learn
    keys = np.arange(40) % 2

    def groups() -> None:
        model = olsq.GroupedLeastSquares().fit(X, y, by=keys)
        model.partial_fit(X, y, by=keys)
        model.predict(X, by=keys)

    yield "GroupedLeastSquares", groups

    def windows() -> None:
        model = olsq.GroupedRollingLeastSquares(10).fit(X, y, by=keys)
        model.predict(X, by=keys)
        model.coef_stderr_  # noqa: B018

    yield "GroupedRollingLeastSquares", windows
    yield "paths by group", lambda: olsq.coefficient_path(X, y, by=keys)
    yield "windows by group", lambda: olsq.coefficient_path(X, y, by=keys, window=10)


def _sequences() -> Iterator[Step]:
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        K, V, Q = (rng.standard_normal((2, 40, 4)).astype(dtype) for _ in range(3))

        def solve(K: NDArray = K, V: NDArray = V, Q: NDArray = Q) -> None:
            olsq.online_lstsq(K, V, Q, ridge=1.0)
            olsq.online_lstsq(K, V, Q, ridge=1.0, forget=0.9)

        yield f"online_lstsq, {np.dtype(dtype).name}", solve
        local = K, V, Q
        yield (
            f"local_lstsq, {np.dtype(dtype).name}",
            lambda local=local: olsq.local_lstsq(*local, ridge=1.0),
        )


def _compiled() -> Iterator[Step]:
    def use() -> None:
        state = olsq.compiled.init(3)
        olsq.compiled.update(state, np.ones(3), 1.0)
        olsq.compiled.predict(state, np.ones(3))
        olsq.compiled.coef(state)

    yield "olsq.compiled", use


def _polars() -> Iterator[Step]:
    import polars as pl

    import olsq.polars  # noqa: F401  registers the namespace

    X, y = _rows(2)
    frame = pl.DataFrame({"y": y, "a": X[:, 0], "b": X[:, 1], "key": np.arange(40) % 2})
    target: Any = pl.col("y")
    for name, expression in {
        "rls": target.olsq.rls("a", "b"),
        "rolling": target.olsq.rolling("a", "b", window=10),
    }.items():

        def select(expression: Any = expression) -> None:
            frame.select(expression)
            frame.select(expression.over("key"))

        yield f"olsq.polars.{name}", select


PARTS: dict[str, Callable[[], Iterator[Step]]] = {
    "streams": _streams,
    "windows": _windows,
    "variants": _variants,
    "banks": _banks,
    "sequences": _sequences,
    "compiled": _compiled,
    "polars": _polars,
}
