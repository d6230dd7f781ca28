"""Quiet starts, gaps and changes of scale through every other way to learn.

``test_interruptions.py`` has the three methods; here are windows, banks, groups, variants, factors
of ``olsq.linalg``, Dask, river and decoding, on the streams of ``olsq.testing.interruption``.
"""

from __future__ import annotations

import dask
import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import distributed
from olsq.linalg import cholesky_downdate, cholesky_update
from olsq.reference import rational
from olsq.river import RecursiveLeastSquares as RiverLeastSquares
from olsq.sequence import start_decoding
from olsq.testing import Interruption, interruption
from tests.versions import x64

EPS = float(np.finfo(np.float64).eps)
LONG = 320  # rows of new life: 20 half-lives
EVENTS = [
    ("silent start", 60), ("constant start", 60), ("noise-free start", 500), ("gap", 960),
    ("gap", 100_000), ("bursts", 960), ("noise rises", 100), ("noise falls", 100),
    ("amplitude rises", 200), ("amplitude falls", 200), ("column scales", 12),
]  # fmt: skip
SHORT = [  # whose first 24 rows an exact oracle can do
    ("silent start", 1), ("noise-free start", 10), ("gap", 10), ("gap", 251), ("gap", 100_000),
    ("bursts", 960), ("noise rises", 100), ("amplitude rises", 200), ("amplitude falls", 200),
    ("column scales", 6), ("column scales", 12),
]  # fmt: skip


def with_ones(s: Interruption) -> np.ndarray:
    return np.column_stack([np.ones(len(s.X)), s.X])


def in_blocks(est, s: Interruption, rows: int, timed: bool):
    """Learn a block at a time; each goes on from the file of the one before."""
    for start in range(0, len(s.X), rows):
        own = slice(start, start + rows)
        est.partial_fit(s.X[own], s.y[own], **({"times": s.times[own]} if timed else {}))
        est = olsq.loads(est.to_bytes())
    return est


# -- the past is over ------------------------------------------------------------------------------


def by(make, timed=True):
    def learn(s):
        est = in_blocks(make(), s, 50, timed)
        return est.coef_, est.intercept_

    return learn


def by_groups(s):
    groups = olsq.GroupedLeastSquares(half_life=1.0, ridge=0.0)
    X, y, times = (np.repeat(a, 2, axis=0) for a in (s.X, s.y, s.times))
    labels = np.arange(len(X)) % 2
    for start in range(0, len(X), 100):
        own = slice(start, start + 100)
        groups.partial_fit(X[own], y[own], by=labels[own], times=times[own])
        groups = olsq.loads(groups.to_bytes())
    return groups.coef_[1], groups.intercept_[1]


def by_kernel(s):
    """A linear kernel with an intercept; its ridge is small beside these rows."""
    est = olsq.KernelLeastSquares(
        "linear", half_life=1.0, ridge=1e-9, threshold=1e-12, fit_intercept=True
    )
    est = in_blocks(est, s, 50, timed=True)
    at = np.abs(s.X[-20:]).max(0)
    found = est.predict(np.vstack([np.zeros(2), np.diag(at)]))
    return (found[1:] - found[0]) / at, found[0]


def by_river(s):
    model = RiverLeastSquares(half_life=1.0, ridge=0.0, time="t")
    for x, y, t in zip(s.X.tolist(), s.y.tolist(), s.times.tolist(), strict=True):
        model.learn_one({"a": x[0], "b": x[1], "t": t}, y)
    return model.estimator.coef_, model.estimator.intercept_


def by_dask(s):
    n = len(s.X)
    cuts = np.unique([*range(0, n, 97), s.alive, min(s.alive + 1, n), n])
    rows = tuple(np.diff(cuts).tolist())
    X = da.from_array(s.X, chunks=(rows, 2))
    y, times = (da.from_array(a, chunks=(rows,)) for a in (s.y, s.times))
    with dask.config.set(scheduler="synchronous"):
        est = distributed.fit(X, y, times=times, half_life=1.0, ridge=0.0)
    return est.coef_, est.intercept_


def solved(R: np.ndarray):
    """Coefficients of a factor of (1, X, y)."""
    assert np.isfinite(R).all()
    scale = np.abs(R[:3, :3]).max(0)
    theta = np.linalg.solve(R[:3, :3] / scale, R[:3, 3]) / scale
    return theta[1:], theta[0]


def by_factor(s):
    R = np.zeros((4, 4))
    for row, gate in zip(np.column_stack([with_ones(s), s.y]), s.forget, strict=True):
        R = cholesky_update(np.sqrt(gate) * R, row)
    return solved(R)


def by_factor_in_jax(s):
    with x64(True):
        rows = jnp.asarray(np.column_stack([with_ones(s), s.y])), jnp.asarray(np.sqrt(s.forget))
        R, _ = jax.lax.scan(
            lambda R, given: (cholesky_update(given[1] * R, given[0]), None),
            jnp.zeros((4, 4)), rows,
        )  # fmt: skip
        return solved(np.asarray(R))


def by_decoding(s, jax_arrays=False):
    Z = with_ones(s)
    scale = np.abs(Z).max(0)
    start = olsq.Moments(1e-6 * np.eye(3), np.zeros((1, 3)))
    if not jax_arrays:
        state = start_decoding(start)
        for key, value, gate in zip(Z / scale, s.y[:, None], s.forget, strict=True):
            state = olsq.update(state, key, value, forget=gate)
        theta = np.array([olsq.query(state, e)[0] for e in np.eye(3)]) / scale
        return theta[1:], theta[0]
    with x64(True):
        tokens = tuple(jnp.asarray(a) for a in (Z / scale, s.y[:, None], s.forget))
        state, _ = jax.lax.scan(
            lambda state, t: (olsq.update(state, t[0], t[1], forget=t[2]), None),
            olsq.Moments(*(jnp.asarray(a) for a in start)), tokens,
        )  # fmt: skip
        found = [float(olsq.query(state, jnp.asarray(e), ridge=jnp.zeros(3))[0]) for e in np.eye(3)]
        theta = np.array(found) / scale
        return theta[1:], theta[0]


def total():
    return olsq.TotalLeastSquares(half_life=1.0)


def last_rows(s: Interruption, make, timed=True):
    """A fit of the last stretch."""
    given = {"times": s.times[s.alive :]} if timed else {}
    est = make().partial_fit(s.X[s.alive :], s.y[s.alive :], **given)
    return est.coef_, est.intercept_


def fresh():
    return olsq.RecursiveLeastSquares(half_life=1.0, method="sqrt", ridge=0.0)


def window():
    return olsq.RollingLeastSquares(window=64, ridge=0.0)


def window_of_time():
    return olsq.RollingLeastSquares(window=4.0, ridge=0.0)


# The way to learn, and what a fit of the last stretch is made with.
DOORS = {
    "window": (by(window, timed=False), lambda s: last_rows(s, window, timed=False)),
    "window of time": (by(window_of_time), lambda s: last_rows(s, window_of_time)),
    "groups": (by_groups, None),
    "total": (by(total), lambda s: last_rows(s, total)),
    "kernel": (by_kernel, None),
    "river": (by_river, None),
    "Dask": (by_dask, None),
    "factor": (by_factor, None),
    "factor, JAX": (by_factor_in_jax, None),
    "decoding, prepared": (by_decoding, None),
    "decoding, JAX": (lambda s: by_decoding(s, jax_arrays=True), None),
}
# A ridge that stays is large beside regressors of 1e-6 and less; moments square what they hold.
NOT_FOR = {
    "kernel": {"amplitude falls", "column scales"},
    "decoding, prepared": {"amplitude falls", "amplitude rises"},
    "decoding, JAX": {"amplitude falls", "amplitude rises"},
}
COMPILED = {"factor, JAX", "decoding, JAX"}  # anew for every length


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "kind", "size"),
    [
        (door, kind, size)
        for door in DOORS
        for kind, size in EVENTS
        if kind not in NOT_FOR.get(door, ())
        and not (door in COMPILED and size not in (60, 960, 12))
    ],
)
def test_after_twenty_half_lives_the_past_is_over(door, kind, size):
    """As a fit that has seen the last stretch only, to a thousandth of the targets."""
    s = interruption(kind, size, rows=LONG)
    learn, of_last_rows = DOORS[door]
    coef, intercept = learn(s)
    wanted, level = last_rows(s, fresh) if of_last_rows is None else of_last_rows(s)
    error = np.abs((coef - wanted) * np.abs(s.X[-20:]).max(0))
    if not kind.startswith("amplitude"):  # where older rows are larger, theirs is the intercept
        error = np.append(error, np.abs(intercept - level))
    assert (error <= 1e-3 * np.abs(s.y[-20:]).max()).all(), error


@pytest.mark.full
def test_rows_that_leave_a_factor_leave_nothing_behind():
    """A window by updates and downdates over a stream whose noise falls 100 times."""
    s = interruption("noise falls", 100, rows=200)
    rows, R = np.column_stack([with_ones(s), s.y]), np.zeros((4, 4))
    for t, row in enumerate(rows):
        R = cholesky_update(R, row)
        if t >= 50:
            R = cholesky_downdate(R, rows[t - 50])
    coef, intercept = solved(R)
    wanted = np.linalg.lstsq(rows[-50:, :3], s.y[-50:], rcond=None)[0]
    np.testing.assert_allclose([intercept, *coef], wanted, rtol=1e-9)


# -- exactly ---------------------------------------------------------------------------------------


def bank_rows(s, ridge):
    bank = olsq.FilterBank(2, ridge=ridge)
    for t in range(len(s.X)):
        bank.partial_fit(s.X[[t, t]], s.y[[t, t]], forget=np.full(2, s.forget[t]))
        bank = olsq.loads(bank.to_bytes())
        yield [bank.intercept_[1], *bank.coef_[1]], bank.determined_[1]


def arm_rows(s, ridge):
    bank = olsq.FilterBank(3, ridge=ridge, n_features=2)
    for t in range(len(s.X)):
        bank.partial_fit(s.X[t], float(s.y[t]), forget=s.forget[t], which=1)
        yield [bank.intercept_[1], *bank.coef_[1]], bank.determined_[1]


def group_rows(s, ridge):
    groups = olsq.GroupedLeastSquares(half_life=1.0, ridge=ridge)
    for t in range(len(s.X)):
        own = [t, t]
        groups.partial_fit(s.X[own], s.y[own], by=["a", "b"], times=s.times[own])
        groups = olsq.loads(groups.to_bytes())
        yield [groups.intercept_[1], *groups.coef_[1]], groups.determined_[1]


def rows_of(make):
    def learn(s, ridge):
        est = make(ridge)
        for t in range(len(s.X)):
            est.partial_fit(s.X[t : t + 1], s.y[t : t + 1], times=s.times[t : t + 1])
            est = olsq.loads(est.to_bytes())
            yield [est.intercept_, *est.coef_], getattr(est, "determined_", np.ones(2, np.bool_))

    return learn


ONE_BY_ONE = {
    "bank": bank_rows,
    "one arm": arm_rows,
    "groups": group_rows,
    "constrained": rows_of(
        lambda ridge: olsq.ConstrainedLeastSquares(bounds=(-1e60, 1e60), half_life=1.0, ridge=ridge)
    ),
    "sandwich": rows_of(
        lambda ridge: olsq.RecursiveLeastSquares(half_life=1.0, ridge=ridge, cov="sandwich")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), SHORT)
@pytest.mark.parametrize("way", ONE_BY_ONE)
def test_what_rows_determine_is_as_in_rational_arithmetic(way, kind, size):
    """After every row of 24; every state is saved and loaded, except the arm's."""
    ridge = 1e-3
    s = interruption(kind, size, rows=6 if kind == "bursts" else 10, noise=0.0)
    s = s._replace(X=s.X[:24], y=s.y[:24], times=s.times[:24], forget=s.forget[:24])
    X, full = with_ones(s), np.array([0.0, ridge, ridge])
    H, squares, worst, judged = full.copy(), 0.0, 1.0, 0
    for t, (theta, determined) in enumerate(ONE_BY_ONE[way](s, ridge)):
        assert np.isfinite(theta).all()
        H, squares = s.forget[t] * H + X[t] ** 2, s.forget[t] * squares + s.y[t] ** 2
        exact = rational.solve(X[: t + 1], s.y[: t + 1], s.forget, np.ones(t + 1), full)
        assert exact is not None
        if not determined.all():
            continue
        # The covariance form squares the condition number, and keeps what that has lost a while.
        worst = max(worst, exact[1].max())
        limit = 300 * EPS * worst**2 * np.sqrt(squares / H)
        assert (np.abs(theta - exact[0]) <= limit).all(), t
        judged += 1
    assert judged >= 8


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("kind", "size"), [("gap", 60), ("gap", 960), ("gap", 100_000),
                                            ("bursts", 300)])  # fmt: skip
@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_coefficients_stay_within_what_they_were_and_what_rows_say(method, kind, size, seed):
    """Between a gap and the rows that determine everything, theta is moved as little as they allow.

    A move by least norm from the values before, a, to values that fit the new rows, as the exact
    solution e does, ends within ``|a - e|`` of e.  So its norm is at most ``|a| + 2 |e|``, in units
    of the columns.
    """
    s = interruption(kind, size, rows=6, features=2, noise=0.1, seed=seed)
    X, ridge = with_ones(s), np.array([0.0, 1e-3, 1e-3])
    est = olsq.RecursiveLeastSquares(half_life=1.0, method=method)
    ends = np.flatnonzero(s.forget < 0.1)  # the first rows after gaps
    for t in range(len(X)):
        before = np.array([est.intercept_, *est.coef_]) if t in ends else None
        est.partial_fit(s.X[t : t + 1], s.y[t : t + 1], times=s.times[t : t + 1])
        if before is not None:
            was, most = np.linalg.norm(before), 0.0
        if t >= ends[0]:
            exact = rational.solve(X[: t + 1], s.y[: t + 1], s.forget, np.ones(t + 1), ridge)
            assert exact is not None
            most = max(most, float(np.linalg.norm(exact[0])))
            size_now = np.linalg.norm([est.intercept_, *est.coef_])
            assert size_now <= (was + 2 * most) * (1 + 1e-9)


# -- files -----------------------------------------------------------------------------------------

SAVED = {
    "robust": lambda: olsq.RobustLeastSquares(half_life=1.0),
    "constrained": lambda: olsq.ConstrainedLeastSquares(bounds=(0.0, np.inf), half_life=1.0),
    "elastic net": lambda: olsq.OnlineElasticNet(alpha=1e-3, half_life=1.0),
    "total": total,
    "kernel": lambda: olsq.KernelLeastSquares(gamma=1.0, half_life=1.0),
    "window of time": window_of_time,
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [*SHORT, ("silent start", 29), ("constant start", 60)])
@pytest.mark.parametrize("name", SAVED)
def test_every_state_is_finite_and_can_be_loaded(name, kind, size):
    s = interruption(kind, size, rows=12)
    est = SAVED[name]()
    for t in [*range(20), *range(max(20, s.alive - 2), len(s.X))]:
        if t >= len(s.X):
            break
        est.partial_fit(s.X[t : t + 1], s.y[t : t + 1], times=s.times[t : t + 1])
        loaded = olsq.loads(est.to_bytes())
        x = s.X[t : t + 1]
        np.testing.assert_array_equal(loaded.predict(x), est.predict(x))
        known = t >= 4 or name not in ("total", "window of time")  # without a ridge
        assert not known or np.isfinite(est.predict(x)).all() or name == "total"
