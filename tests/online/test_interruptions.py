"""A sensor that is at rest, offline, or rescaled, and then alive: through every way to learn.

The streams are those of ``olsq.testing.interruption``.  An exact oracle in rational arithmetic
judges short ones, where old rows weigh 1e-300 of new ones; longer ones are judged by a fit that
has seen the new rows only.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import olsq
from olsq.reference import rational
from olsq.testing import INTERRUPTIONS, Interruption, interruption
from olsq.testing.kinds import SIZES

EPS = float(np.finfo(np.float64).eps)
METHODS = ("covariance", "sqrt", "information")
CASES = [(kind, size) for kind in INTERRUPTIONS for size in SIZES[kind]]
GAPS = [(kind, size) for kind, size in CASES if kind in ("gap", "bursts")]


def with_ones(s: Interruption) -> np.ndarray:
    return np.column_stack([np.ones(len(s.X)), s.X])


def theta(est) -> np.ndarray:
    """The intercept, and the coefficients."""
    return np.concatenate([[est.intercept_], est.coef_])


def estimator(method: str, how: str, **options):
    forgetting = {"half_life": 1.0} if how == "times" else {"forget": 1.0}
    return olsq.RecursiveLeastSquares(method=method, **forgetting, **options)


def learn(est, s: Interruption, how: str, start: int = 0, stop: int | None = None):
    rows = slice(start, stop)
    given = {"times": s.times[rows]} if how == "times" else {"forget": s.forget[rows]}
    return est.partial_fit(s.X[rows], s.y[rows], **given)


# -- exactly ---------------------------------------------------------------------------------------


def allowed(method: str, condition: float, H: np.ndarray, squares: float) -> np.ndarray:
    """Errors (3,) that rounding may cause at this condition number, in each coefficient's units.

    The square-root form loses as many digits as it has, the others twice as many.
    """
    lost = condition if method == "sqrt" else condition**2
    return 300 * EPS * lost * np.sqrt(squares / H)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [c for c in CASES if "start" not in c[0] or c[1] < 20])
@pytest.mark.parametrize("how", ["times", "factors"])
@pytest.mark.parametrize("method", METHODS)
def test_what_rows_determine_is_as_in_rational_arithmetic(method, how, kind, size):
    """After every row of 24: a coefficient that is determined has its digits."""
    ridge = 1e-3
    s = interruption(kind, size, rows=6 if kind == "bursts" else 10, noise=0.0)
    est, worst = estimator(method, how, ridge=ridge), 1.0
    X, full = with_ones(s)[:24], np.array([0.0, ridge, ridge])
    H, squares, judged = full.copy(), 0.0, 0
    for t in range(len(X)):
        learn(est, s, how, t, t + 1)
        H = s.forget[t] * H + X[t] ** 2
        squares = s.forget[t] * squares + s.y[t] ** 2
        exact = rational.solve(X[: t + 1], s.y[: t + 1], s.forget, np.ones(t + 1), full)
        assert exact is not None
        if not est.determined_.all():
            continue
        # What the covariance form has lost to an ill-conditioned beginning stays lost for a while.
        worst = max(worst, exact[1].max()) if method == "covariance" else exact[1].max()
        error = np.abs(theta(est) - exact[0])
        limit = allowed(method, worst, H, squares)
        assert (error <= limit).all(), (t, error / limit)
        judged += 1
    assert judged >= 8


@pytest.mark.parametrize("size", [50, 100, 251, 960, 3000, 100_000])
@pytest.mark.parametrize("method", METHODS)
def test_what_a_row_after_a_gap_leaves_open_older_rows_decide(method, size):
    """The row weighs 1e15 to 1e300 times as much, and it still does not throw the others away."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((3, 2))
    y, times = 3 + X.sum(1), np.array([0.0, 1.0, 1.0 + size])
    est = olsq.RecursiveLeastSquares(half_life=1.0, method=method).partial_fit(X, y, times=times)
    gates = np.maximum(np.exp2(-np.diff(times, prepend=0.0)), np.finfo(float).tiny)
    Z = np.column_stack([np.ones(3), X])
    exact = rational.solve(Z, y, gates, np.ones(3), np.array([0.0, est.ridge, est.ridge]))
    assert exact is not None
    np.testing.assert_allclose(theta(est), exact[0], rtol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_a_column_that_stays_silent_after_a_gap_keeps_its_coefficient(method):
    s = interruption("gap", 300, rows=30, features=3, intercept=0.0, noise=0.0)
    X = s.X.copy()
    X[s.alive :, 1] = 0.0
    s = s._replace(X=X, y=X @ s.coef)
    est = estimator(method, "times", fit_intercept=False, ridge=1e-9)
    learn(est, s, "times", 0, s.alive)
    for t in range(s.alive, len(X)):
        learn(est, s, "times", t, t + 1)
        np.testing.assert_allclose(est.coef_, s.coef, rtol=1e-7)
    assert not est.determined_[1]
    assert np.isinf(est.coef_stderr_[1])


@pytest.mark.parametrize("residuals", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_column_that_stays_silent_for_ever_keeps_its_coefficient(method, residuals):
    """Its moments would end in denormal numbers, and their quotient in 0."""
    X = np.random.default_rng(0).standard_normal((1400, 2))
    X[40:, 1] = 0.0
    s = Interruption("", 1, X, X @ [1.0, 2.0], X[:, 0], np.full(1400, 0.5), X[0], 0.0, 40)
    est = estimator(method, "factors", ridge=0.0, fit_intercept=False, residuals=residuals)
    for t in range(0, 1400, 7):
        learn(est, s, "factors", t, t + 7)
        if t > 7:
            np.testing.assert_allclose(est.coef_, [1.0, 2.0], rtol=1e-9)


@pytest.mark.parametrize("power", [-200, -30, 7, 40, 200])
@pytest.mark.parametrize("kind", ["gap", "bursts", "silent start", "noise-free start"])
@pytest.mark.parametrize("method", METHODS)
def test_a_power_of_two_in_a_column_is_exactly_one_in_its_coefficient(method, kind, power):
    s = interruption(kind, 300, rows=30)
    scales = np.array([1.0, 2.0**power])
    one, other = (estimator(method, "times", ridge=0.0) for _ in range(2))
    learn(one, s, "times")
    learn(other, s._replace(X=s.X * scales), "times")
    np.testing.assert_array_equal(other.coef_ * scales, one.coef_)
    np.testing.assert_array_equal(other.intercept_, one.intercept_)


# -- finite, and in files --------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("kind", "size"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_state_is_finite_and_can_be_loaded(method, kind, size):
    s = interruption(kind, size, rows=12)
    est = olsq.RecursiveLeastSquares(half_life=1.0, method=method)
    stops = sorted({*range(1, 30), *range(s.alive, len(s.X) + 1)})
    start = 0
    for stop in stops:
        if start < stop <= len(s.X):
            learn(est, s, "times", start, stop)
            start = stop
            loaded = olsq.loads(est.to_bytes())
            np.testing.assert_array_equal(theta(loaded), theta(est))
            assert np.isfinite(theta(est)).all()
            assert np.isfinite(est.predict(s.X[stop - 1 : stop])).all()


# -- every way to learn ----------------------------------------------------------------------------

LONG = 320  # rows of new life: 20 half-lives


def by_path(s, **options):
    path = olsq.coefficient_path(
        s.X, s.y, half_life=1.0, times=s.times, fit_intercept=True, **options
    )
    assert np.isfinite(path.coef).all()
    return path.coef[-1], path.intercept[-1]


def by_estimator(make, factors=False):
    def learn_all(s):
        est = make()
        given = {"forget": s.forget} if factors else {"times": s.times}
        for rows in (slice(0, s.alive), slice(s.alive, None)):
            if len(s.X[rows]):
                est.partial_fit(s.X[rows], s.y[rows], **{k: v[rows] for k, v in given.items()})
        return est.coef_, est.intercept_

    return learn_all


def by_bank(s):
    bank = olsq.FilterBank(2)
    for t in range(len(s.X)):
        bank.partial_fit(s.X[[t, t]], s.y[[t, t]], forget=np.full(2, s.forget[t]))
    return bank.coef_[1], bank.intercept_[1]


def by_groups(s):
    groups = olsq.GroupedLeastSquares()
    groups.partial_fit(s.X, s.y, by=np.zeros(len(s.X)), forget=s.forget)
    return groups.coef_[0], groups.intercept_[0]


def by_group_path(s):
    by = np.arange(2 * len(s.X)) % 2
    X, y, times = (np.repeat(a, 2, axis=0) for a in (s.X, s.y, s.times))
    path = olsq.coefficient_path(X, y, half_life=1.0, times=times, by=by, fit_intercept=True)
    return path.coef[-1], path.intercept[-1]


def by_merging(s):
    first, second = (olsq.RecursiveLeastSquares(half_life=1.0) for _ in range(2))
    learn(first, s, "times", 0, s.alive + 5)
    learn(second, s, "times", s.alive + 5)
    merged = olsq.merge(first, second)
    return merged.coef_, merged.intercept_


def by_sequence(s, numpy=True):
    convert = np.asarray
    if not numpy:
        import jax.numpy as jnp

        convert = jnp.asarray
    Z = with_ones(s)
    scale = np.abs(Z).max(0)
    keys, values, forget = (convert(a) for a in (Z / scale, s.y[:, None], s.forget))
    sol = olsq.online_lstsq(
        keys, values, convert(np.repeat(np.eye(3)[-1:], len(Z), 0)), forget=forget,
        ridge=convert(np.full(3, 1e-6)), ridge_mode="discounted", solver=olsq.ChunkExact(),
    )  # fmt: skip
    # Between a gap and the third row after it nothing is determined, and the certificate says so.
    value, bound = np.asarray(sol.value), np.asarray(sol.stats.bound)
    assert (np.isfinite(value[:, 0]) | (bound > 1e10)).all()
    H, G = (np.asarray(a) for a in (sol.state.gram, sol.state.cross))
    found = np.linalg.solve(H, G[0]) / scale
    return found[1:], found[0]


def by_decoding(s):
    Z = with_ones(s)
    state = olsq.Moments(1e-6 * np.eye(3), np.zeros((1, 3)))
    for t in range(len(Z)):
        state = olsq.update(state, Z[t], s.y[t : t + 1], forget=s.forget[t])
    found = [float(olsq.query(state, e, ridge=np.zeros(3))[0]) for e in np.eye(3)]
    return np.array(found[1:]), found[0]


DOORS = {
    **{
        f"{method}, {how}": by_estimator(
            lambda method=method, how=how: estimator(method, how), how == "factors"
        )
        for method, how in itertools.product(METHODS, ("times", "factors"))
    },
    "sandwich": by_estimator(
        lambda: olsq.RecursiveLeastSquares(half_life=1.0, cov="sandwich")
    ),
    "fixed ridge": by_estimator(
        lambda: olsq.RecursiveLeastSquares(half_life=1.0, ridge_mode="fixed", ridge=1e-9)
    ),
    "path": by_path,
    "path, sqrt": lambda s: by_path(s, method="sqrt"),
    "path, information": lambda s: by_path(s, method="information"),
    "bank": by_bank,
    "groups": by_groups,
    "path of groups": by_group_path,
    "constrained": by_estimator(
        lambda: olsq.ConstrainedLeastSquares(bounds=(-1e4, 1e4), half_life=1.0)
    ),
    "elastic net": by_estimator(
        lambda: olsq.OnlineElasticNet(alpha=1e-14, half_life=1.0, tol=1e-6)
    ),
    "robust": by_estimator(lambda: olsq.RobustLeastSquares(half_life=1.0)),
    "merging": by_merging,
    "sequence, NumPy": by_sequence,
    "sequence, JAX": lambda s: by_sequence(s, numpy=False),
    "decoding": by_decoding,
}  # fmt: skip
# A robust fit weights rows by its own scale: it is another estimate of the same coefficients.
WITHIN = {"robust": 0.1}
# Numbers that float32 does not have.
NARROW = {"sequence, JAX"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "kind", "size"),
    [
        (door, kind, size)
        for door, (kind, size) in itertools.product(DOORS, CASES)
        if size in (6, 60, 100, 200, 960) and not (door in NARROW and kind.startswith("amplitude"))
    ],
)
def test_after_twenty_half_lives_the_past_is_over(door, kind, size):
    """As a fit that has seen the last stretch only, to a thousandth of the targets; see WITHIN."""
    s = interruption(kind, size, rows=LONG)
    coef, intercept = DOORS[door](s)
    fresh = olsq.RecursiveLeastSquares(half_life=1.0, method="sqrt", ridge=0.0)
    learn(fresh, s, "times", s.alive)
    error = np.abs((coef - fresh.coef_) * np.abs(s.X[-20:]).max(0))
    if not kind.startswith("amplitude"):  # where older rows are larger, theirs is the intercept
        error = np.append(error, np.abs(intercept - fresh.intercept_))
    assert (error <= WITHIN.get(door, 1e-3) * np.abs(s.y[-20:]).max()).all(), error
