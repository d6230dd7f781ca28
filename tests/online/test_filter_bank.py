"""A bank's filters are estimators on streams of their own, however their rows arrive."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq.online.many import merging as bank_merging
from olsq.online.many.parallel import cores, in_pieces, share, uninterrupted
from tests.tiers import examples

from . import streams
from .judge import check_optimal

FORGETTING = list(streams.FORGETTING)
N = len(FORGETTING)


def many(regressors, n=streams.N, m=1):
    """One stream of these regressors for each way of forgetting: X (N, n, d), y (N, n, m), ..."""
    made = [streams.make(regressors, f, n=n, m=m, seed=i) for i, f in enumerate(FORGETTING)]
    return tuple(np.stack(parts) for parts in zip(*made, strict=True))


def reads_alike(bank, i, est, X):
    """The bank reads its state as the estimator with a copy of that state does."""
    probe = np.vstack([np.eye(X.shape[1]), X[-3:], X[-1] + np.eye(X.shape[1])])
    found, expected = bank.leverage(probe, which=i), est.leverage(probe)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = expected[np.isfinite(expected) & (expected > 0)]
    # Leverages of rows of one size differ by the square of the condition, which roundings of the
    # inverse count.
    ratio = finite.max(initial=1.0) / finite.min(initial=1.0)
    rtol = min(1e-3, max(1e-9, 1e2 * np.finfo(float).eps * ratio))
    # What is held, or told from rounding by little, has a condition of 1e13 and no finite leverage.
    if bank.n_held_[i] > 0 or not np.isfinite(expected[:1]).all():
        rtol = 1e-3
    form = est._form()
    if form.full_rank:
        # w R = x is solved with errors of eps d |w| |R| |R^-1| (Higham 2002, section 8.2) by each.
        d = len(form.R)
        rows = np.hstack([np.ones((len(probe), d - probe.shape[1])), probe])
        W = np.abs(form.whitened(rows)[0])
        errors = W @ np.abs(form.R) @ np.abs(form.inverse_root())
        relative = np.linalg.norm(errors, axis=1) / np.linalg.norm(W, axis=1)
        rtol = np.maximum(rtol, 4 * d * np.finfo(float).eps * relative)
    assert np.isclose(found, expected, rtol=rtol, atol=0.0).all(), (found, expected, rtol)


def draws_alike(bank, i, est):
    """The bank draws from the distribution of the estimator of its state, or refuses as that does.

    The two take different roots of one covariance: draws have one distance from the estimate.
    """
    try:
        draws = est.sample_coef(0, 3, sigma2=1.0)
    except ValueError:
        with pytest.raises(ValueError, match=f"filter {i} are undetermined"):
            bank.sample_coef(0, 3, sigma2=1.0, which=i)
    else:
        found = bank.sample_coef(0, 3, sigma2=1.0, which=i)
        known = np.isfinite(est.coef_stderr_).all() and not est._origin.sandwich
        if known and not est.fit_intercept:
            gram = est.moments().gram
            distances = [np.einsum("si,ij,sj->s", d, gram, d)
                         for d in (found - est.coef_, draws - est.coef_)]  # fmt: skip
            size = np.abs(gram).max() * np.abs(draws - est.coef_).max() ** 2
            np.testing.assert_allclose(*distances, rtol=1e-5, atol=1e-11 * size)


def agree(bank, i, est, X, y, residual=None, inflation=0.0):
    """Filter i is where the estimator is: form, rank, holds; numbers to rounding."""
    one = bank[i]
    reads_alike(bank, i, one, X)
    assert type(one._form()) is type(est._form())
    assert (bank.rank_[i], bank.n_held_[i]) == (est.rank_, est.n_held_)
    assert bank.n_samples_seen_[i] == one.n_samples_seen_ == est.n_samples_seen_
    np.testing.assert_array_equal(bank.determined_[i], est.determined_)
    size = np.abs(X).max(0)
    scale = max(np.abs(est.coef_ * size).max(), np.abs(y).max(), 1e-300)
    atol = 1e-12 * scale / size.min()
    np.testing.assert_allclose(bank.coef_[i], one.coef_, rtol=1e-12, atol=atol)
    errors, variance = est.coef_stderr_, est._form().inverse_diagonal()
    np.testing.assert_array_equal(np.isfinite(bank.coef_stderr_[i]), np.isfinite(errors))
    np.testing.assert_allclose(bank.sigma2_[i], est.sigma2_, rtol=1e-5, atol=1e-18 * scale**2)
    # Both are off by about eps times the condition; past 1e12 (a ridge that a gate of 1e-7 left of
    # collinear columns) only the objective can be compared, which the next test does.
    gram = est.moments().gram
    length = np.sqrt(np.diagonal(gram)) + (np.diagonal(gram) == 0)
    condition = np.linalg.cond(gram / np.outer(length, length)) if est.determined_.all() else 1.0
    if condition > 1e12:
        return
    draws_alike(bank, i, one)
    tolerance = max(1e-9, 300 * 2.2e-16 * condition)
    assert np.abs((bank.coef_[i] - est.coef_) * size).max() <= tolerance * scale
    assert np.abs(bank.intercept_[i] - est.intercept_).max() <= tolerance * scale
    # P S P cancels most of P where a direction was hardly seen.
    size = np.sqrt(est.sigma2_ * variance[np.isfinite(variance)].max(initial=0.0))
    atol = 1e-7 * size if np.isfinite(size) else 0.0
    np.testing.assert_allclose(bank.coef_stderr_[i], errors, rtol=1e-5, atol=atol)
    if residual is not None:
        allowed = (tolerance + 64 * 2.2e-16 * inflation) * scale + 1e-8 * np.abs(est.residual_)
        assert (np.nan_to_num(np.abs(residual - est.residual_)) <= allowed).all()


OPTIONS = {
    "diffuse": {"ridge": 0.0},
    "ridge": {"ridge": 1e-3, "fit_intercept": False},
    "sqrt": {"ridge": 1e-3, "method": "sqrt"},
    "sandwich": {"ridge": 1e-2, "cov": "sandwich"},
}


@pytest.mark.full
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_each_filter_is_an_estimator(regressors, options):
    X, y, gates, weights = many(regressors)
    bank = olsq.FilterBank(N, **OPTIONS[options])
    bank.partial_fit(X, y[:, :, 0], weights, forget=gates)
    for i in range(N):
        est = olsq.RecursiveLeastSquares(**OPTIONS[options])
        est.partial_fit(X[i], y[i, :, 0], weights[i], forget=gates[i])
        given = {"fit_intercept": True, "forget": gates[i], "sample_weight": weights[i]}
        inflation = streams.worst_inflation(X[i], y[i, :, 0], **given | OPTIONS[options])
        agree(bank, i, est, X[i], y[i], bank.residual_[i], inflation)


@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("intercept", [True, False])
def test_no_filter_is_above_the_minimum(regressors, intercept):
    """Against the dense oracle, on the rows that forgetting has left."""
    X, y, gates, weights = many(regressors, m=2)
    bank = olsq.FilterBank(N, ridge=1e-3, fit_intercept=intercept)
    bank.partial_fit(X, y, weights, forget=gates)
    for i in range(N):
        after = np.append(np.cumprod(gates[i][:0:-1])[::-1], 1.0)
        ridge = np.full(X.shape[2], 1e-3 * np.prod(gates[i]))
        bias = bank.intercept_[i] if intercept else np.zeros(2)
        check_optimal(
            X[i], y[i], after * weights[i], ridge, intercept, bank.coef_[i], bias,
            np.finfo(float).eps,
        )  # fmt: skip


@pytest.mark.parametrize("regressors", ["white", "collinear", "zero keys"])
def test_row_by_row_with_missing_values_is_each_stream_alone(regressors):
    X, y, _, _ = many(regressors)
    y = y[:, :, 0].copy()
    rng = np.random.default_rng(1)
    X = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    y[rng.random(y.shape) < 0.1] = np.inf
    bank = olsq.FilterBank(N, forget=np.linspace(0.9, 1.0, N), ridge=0.0)
    ests = [olsq.RecursiveLeastSquares(forget=f, ridge=0.0) for f in bank.forget]
    fine = np.isfinite(X).all(2) & np.isfinite(y)
    for t in range(X.shape[1]):
        before = bank.predict(X[:, t]) if t else np.zeros(N)
        predicted, residual = bank.step(X[:, t], y[:, t])
        ok = np.isfinite(X[:, t]).all(1)
        np.testing.assert_array_equal(predicted[ok], before[ok])
        np.testing.assert_array_equal(np.isnan(residual), ~fine[:, t])
        for i in np.flatnonzero(fine[:, t]):
            ests[i].partial_fit(X[i, t : t + 1], y[i, t : t + 1])
    for i, est in enumerate(ests):
        agree(bank, i, est, X[i][fine[i]], y[i][fine[i]])


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=8),
       st.integers(0, 100), st.sampled_from([0.0, 0.1]))  # fmt: skip
def test_arms_that_are_not_chosen_do_not_change(calls, seed, ridge):
    rng = np.random.default_rng(seed)
    bank = olsq.FilterBank(4, n_features=2, forget=0.9, ridge=ridge)
    ests = [olsq.RecursiveLeastSquares(forget=0.9, ridge=ridge) for _ in range(4)]
    for which in calls:
        X, y = rng.integers(-2, 3, (len(which), 2)).astype(float), rng.standard_normal(len(which))
        others = np.setdiff1d(np.arange(4), which)
        before = bank._state_or_raise().take(others).arrays()
        bank.partial_fit(X, y, which=which)
        for name, array in bank._state.take(others).arrays().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
        for i, row, target in zip(which, X, y, strict=True):
            ests[i].partial_fit(row[None], [target])
    seen = np.concatenate(calls)
    for i in np.unique(seen):
        np.testing.assert_allclose(bank.coef_[i], ests[i].coef_, rtol=0, atol=1e-9)
        assert bank.n_samples_seen_[i] == (seen == i).sum()


@pytest.mark.parametrize("data", ["float64", "float32"])
def test_precisions(data):
    X, y, _, _ = many("tokens")
    X, y = X.astype(data), y[:, :, 0].astype(data)
    bank = olsq.FilterBank(N, forget=0.98)
    bank.partial_fit(X[:, :30], y[:, :30]).partial_fit(X[:, 30:], y[:, 30:])
    assert bank.coef_.dtype == bank.residual_.dtype == bank.predict(X).dtype == data
    for i in range(N):
        est = olsq.RecursiveLeastSquares(forget=0.98)
        est.partial_fit(X[i, :30], y[i, :30]).partial_fit(X[i, 30:], y[i, 30:])
        tolerance = 1e-4 if data == "float32" else 1e-10
        np.testing.assert_allclose(bank.coef_[i], est.coef_, rtol=0, atol=tolerance)


@pytest.mark.full
def test_one_direction_for_ever():
    """1e5 rows that excite one direction: what is held stays, nothing overflows or drifts."""
    rng = np.random.default_rng(0)
    truth, key = np.array([1.0, -2.0, 3.0]), np.array([[1.0, 0.5, -0.25], [0, 2, 0], [0, 0, 0]])
    bank = olsq.FilterBank(3, forget=0.98, fit_intercept=False)
    X = rng.standard_normal((3, 300, 3))
    bank.partial_fit(X, X @ truth)
    before = bank.coef_
    for _ in range(10):
        rows = np.repeat(key[:, None], 10_000, axis=1)
        bank.partial_fit(rows, rows @ truth)
        assert np.isfinite(bank.coef_).all()
    np.testing.assert_allclose(bank.coef_, before, atol=1e-9)
    assert (bank.n_held_ > 0).all()
    X = rng.standard_normal((3, 2000, 3))
    np.testing.assert_allclose(bank.partial_fit(X, -X @ truth).coef_[0], -truth, atol=1e-9)


def test_several_targets_and_shared_rows():
    X, y, gates, _ = many("ar1", m=3)
    bank = olsq.FilterBank(N).partial_fit(X, y, forget=gates)
    assert bank.coef_.shape == (N, 3, 3)
    assert bank.intercept_.shape == bank.sigma2_.shape == (N, 3)
    assert bank.predict(X[:, 0]).shape == (N, 3)
    row = np.ones(3)
    np.testing.assert_array_equal(bank.predict(row), bank.predict(np.tile(row, (N, 1))))
    np.testing.assert_array_equal(bank.predict(row, which=2), bank.predict(row)[2])
    np.testing.assert_allclose(bank.predict(X[:, :5])[1, 4], bank[1].predict(X[1, 4:5])[0])


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
def test_leverage_is_that_of_the_dense_inverse(ridge):
    X, y, gates, weights = many("mixed units")
    bank = olsq.FilterBank(N, n_features=3, ridge=ridge, fit_intercept=ridge > 0)
    if ridge == 0:
        assert np.isinf(bank.leverage(np.ones(3))).all()
        assert (bank.leverage(np.zeros(3)) == 0).all()
    bank.partial_fit(X, y[:, :, 0], weights, forget=gates)
    probe = np.random.default_rng(2).standard_normal((N, 4, 3)) * [1e-6, 1, 1e6]
    found = bank.leverage(probe)
    for i in range(N):
        P = np.linalg.inv(bank[i].moments().gram)
        x = np.insert(probe[i], 0, 1, axis=1) if ridge > 0 else probe[i]
        np.testing.assert_allclose(found[i], ((x @ P) * x).sum(1), rtol=1e-3)
    probe[0, 0, 0] = np.nan
    assert np.isnan(bank.leverage(probe)[0, 0])


def test_leverage_knows_what_was_never_seen():
    bank = olsq.FilterBank(2, ridge=0.0, fit_intercept=False)
    bank.partial_fit([[1.0, 1e-5, 0.0], [0.0, 1.0, 0.0]], [1.0, 1.0])
    found = bank.leverage(np.array([[[2.0, 2e-5, 0], [1, 0, 0]], [[0, 3, 0], [0, 1, 1e-9]]]))
    np.testing.assert_allclose(found, [[4, np.inf], [9, np.inf]])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("cov", ["posterior", "sandwich"])
def test_nothing_is_known_along_coefficients_that_wind_up_protection_holds(cov, intercept):
    """Their variance in the state is finite, and that of a level at which they are held."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 400, 3))
    X[0, 20:, 2] = 0.0
    X[1, 20:, 2] = X[1, 20:, 0] + X[1, 20:, 1]
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal((3, 400))
    how = {"forget": 0.5, "cov": cov, "fit_intercept": intercept, "noise_variance": 0.01}
    bank = olsq.FilterBank(3, **how).partial_fit(X, y)
    assert (bank.n_held_[:2] > 0).all()
    leverage = bank.leverage(np.array([0.0, 0.0, 1.0]))
    assert np.isfinite(leverage).tolist() == bank.determined_[:, 2].tolist() == [False, False, True]
    assert np.isfinite(bank.leverage(np.array([1.0, 1.0, 0.0]), which=0))
    for i in range(3):
        reads_alike(bank, i, bank[i], X[i])
        draws_alike(bank, i, bank[i])
    groups = olsq.GroupedLeastSquares(**how)
    groups.partial_fit(X.reshape(-1, 3), y.ravel(), by=np.repeat([0, 1, 2], 400))
    lower, upper = groups.predict_interval([[0.0, 0.0, 1.0]] * 3, by=[0, 1, 2])
    assert np.isfinite(lower).tolist() == np.isfinite(upper).tolist() == [False, False, True]
    for key in range(3):  # with the sandwich too
        found = (bound[key] for bound in groups.predict_interval(X[:, -1], by=[0, 1, 2]))
        expected = (bound[0] for bound in groups[key].predict_interval(X[key, -1:]))
        np.testing.assert_allclose([*found], [*expected], rtol=1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_no_filter_and_no_row_may_be_asked(options):
    rng = np.random.default_rng(0)
    bank = olsq.FilterBank(3, **OPTIONS[options])
    bank.partial_fit(rng.standard_normal((3, 9, 2)), rng.standard_normal((3, 9)))
    none, nobody = np.empty((0, 2)), np.empty(0, int)
    for read in (bank.predict, bank.leverage):
        assert read(none, which=nobody).shape == (0,)
        assert read(np.empty((3, 0, 2))).shape == (3, 0)
    assert bank.sample_coef(0, which=nobody).shape == (1, 0, 2)


def test_nothing_is_held_in_a_filter_that_forgets_nothing():
    """Beside one that forgets a little, of whose nearly equal columns both are held."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(12), rng.standard_normal(12)
    X = np.column_stack([x, x + 2e-14 * rng.standard_normal(12)])
    bank = olsq.FilterBank(2, forget=np.array([1.0, 0.99]), fit_intercept=False)
    bank.partial_fit(np.stack([X, X]), np.stack([y, y]))
    found = np.isfinite(bank.leverage(np.eye(2)[[0, 0]][:, None]))
    assert found.tolist() == [[True], [False]]
    for i in range(2):
        reads_alike(bank, i, bank[i], X)


@pytest.mark.parametrize("cov", ["posterior", "sandwich"])
def test_draws_have_the_covariance_of_the_estimates(cov):
    X, y, gates, _ = many("mixed units")
    for method in ("covariance", "sqrt"):
        bank = olsq.FilterBank(N, ridge=1e-6, cov=cov, method=method)
        bank.partial_fit(X, y[:, :, 0], forget=np.maximum(gates, 0.9))
        coef, intercept = bank.sample_coef(0, 20_000, return_intercept=True)
        assert coef.shape == (20_000, N, 3)
        for found, mean, error in (
            (coef, bank.coef_, bank.coef_stderr_),
            (intercept, bank.intercept_, bank.intercept_stderr_),
        ):
            assert (np.abs(found.mean(0) - mean) < 5 * error / np.sqrt(20_000)).all()
            np.testing.assert_allclose(found.std(0), error, rtol=0.03)
    assert bank.sample_coef(0, which=[1, 2], sigma2=[1.0, 0.0]).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="filter 0 are undetermined"):
        olsq.FilterBank(2, n_features=1, ridge=0.0).sample_coef(sigma2=1.0)
    with pytest.raises(ValueError, match="sigma2="):
        olsq.FilterBank(2, n_features=1, fit_intercept=False).sample_coef()
    with pytest.raises(ValueError, match="sigma2 must be"):
        bank.sample_coef(sigma2=np.ones(3))


def test_a_filter_goes_on_as_an_estimator():
    X, y, _, _ = many("long runs")
    bank = olsq.FilterBank(N, forget=np.linspace(0.9, 1, N), ridge=np.full((N, 3), 0.5))
    bank.partial_fit(X[:, :20], y[:, :20, 0])
    for i in (0, -1):
        est = bank[i]
        est.partial_fit(X[i, 20:], y[i, 20:, 0])
        whole = olsq.RecursiveLeastSquares(forget=bank.forget[i], ridge=0.5)
        whole.partial_fit(X[i], y[i, :, 0])
        np.testing.assert_allclose(est.coef_, whole.coef_, atol=1e-10)
        assert est.forget == bank.forget[i]
        np.testing.assert_array_equal(est.ridge, bank.ridge[i])
        assert bank.n_samples_seen_[i] == 20  # a copy
    with pytest.raises(IndexError, match="no filter 6"):
        bank[6]
    with pytest.raises(TypeError, match="integer"):
        bank["a"]


@pytest.mark.parametrize("options", OPTIONS)
def test_files_copies_and_pickles_go_on_bit_for_bit(options, tmp_path):
    X, y, gates, weights = many("collinear")
    bank = olsq.FilterBank(N, **OPTIONS[options])
    bank.partial_fit(X[:, :25], y[:, :25, 0], weights[:, :25], forget=gates[:, :25])
    bank.save(tmp_path / "bank.olsq", metadata={"rows": 25})
    loaded = olsq.load(tmp_path / "bank.olsq")
    assert loaded.metadata_ == {"rows": 25}
    others = [loaded, copy.copy(bank), copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))]
    for each in (bank, *others):
        each.partial_fit(X[:, 25:], y[:, 25:, 0], weights[:, 25:], forget=gates[:, 25:])
    for other in others:
        for name, array in bank._state.arrays().items():
            np.testing.assert_array_equal(array, getattr(other._state, name), err_msg=name)


def test_a_damaged_file_is_refused(tmp_path):
    bank = olsq.FilterBank(2).partial_fit(np.eye(2), [1.0, 2.0])
    from olsq.online.files import format as files

    def written(change):
        header, arrays = bank._snapshot(None)
        arrays = {name: array.copy() for name, array in arrays.items()}
        change(header, arrays)
        files.write(tmp_path / "bad.olsq", header, arrays)
        with pytest.raises(olsq.StateFileError):
            olsq.load(tmp_path / "bad.olsq")

    written(lambda h, a: h.pop("dtype"))
    written(lambda h, a: h["parameters"].update(n=3))
    written(lambda h, a: h["parameters"].update(strange=3))
    written(lambda h, a: h["parameters"].update(missing="never"))
    written(lambda h, a: h.update(n_features=0))
    written(lambda h, a: a.pop("pivots"))
    written(lambda h, a: a["pivots"].fill(-1.0))
    written(lambda h, a: a["factor"].fill(np.nan))
    written(lambda h, a: a["loss"].fill(-1.0))
    written(lambda h, a: a.update(tally=a["tally"][:1]))


@pytest.mark.parametrize("regressors", ["white", "collinear", "mixed units"])
def test_merging_is_having_seen_both_streams(regressors):
    X, y, gates, weights = many(regressors)
    gates = np.maximum(gates, 0.5)

    def fed(rows):
        bank = olsq.FilterBank(N, n_features=3)
        some = np.arange(N - 1)  # the last has no row in the first part
        which = some if rows.start is None else np.arange(N)
        return bank.partial_fit(
            X[which, rows], y[which, rows, 0], weights[which, rows], forget=gates[which, rows],
            which=which,
        )  # fmt: skip

    first, second = fed(slice(None, 20)), fed(slice(20, None))
    both = olsq.merge(first, second)
    for i in range(N):
        rows = slice(None) if i < N - 1 else slice(20, None)
        est = olsq.RecursiveLeastSquares()
        est.partial_fit(X[i, rows], y[i, rows, 0], weights[i, rows], forget=gates[i, rows])
        x = np.abs(X[i]).max(0)
        scale = np.abs(y[i]).max()
        assert np.abs((both.coef_[i] - est.coef_) * x).max() < 1e-8 * scale
        assert both.n_samples_seen_[i] == est.n_samples_seen_
    assert first.n_samples_seen_[0] == (weights[0, :20] > 0).sum()
    assert bank_merging.merge(second, olsq.FilterBank(N, n_features=3)).coef_ == pytest.approx(
        second.coef_
    )
    for other in (olsq.FilterBank(N + 1, n_features=3), olsq.FilterBank(N, n_features=2),
                  olsq.FilterBank(N, n_features=3, ridge=2.0)):  # fmt: skip
        with pytest.raises(ValueError, match="cannot merge"):
            olsq.merge(first, other)


def test_growing_keeps_what_there_is():
    X, y, _, _ = many("white")
    bank = olsq.FilterBank(N - 1, forget=0.95).partial_fit(X[:-1], y[:-1, :, 0])
    before = bank.coef_
    assert len(bank.grow(1)) == N
    np.testing.assert_array_equal(bank.coef_[:-1], before)
    bank.partial_fit(X[-1:], y[-1:, :, 0], which=[N - 1])
    est = olsq.RecursiveLeastSquares(forget=0.95).fit(X[-1], y[-1, :, 0])
    np.testing.assert_allclose(bank.coef_[-1], est.coef_, atol=1e-10)
    with pytest.raises(ValueError, match="cannot grow"):
        olsq.FilterBank(2, forget=np.ones(2)).grow(1)


def test_threads_lose_no_row():
    X = np.random.default_rng(0).standard_normal((64, 50, 3))
    bank = olsq.FilterBank(64, n_features=3)

    def learn():
        for _ in range(10):
            bank.partial_fit(X, X.sum(2))
            assert np.isfinite(bank.predict(X[:, 0])).all()

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bank.n_samples_seen_ == 2000).all()


@pytest.mark.parametrize("which", [None, [0, 1]])
def test_an_interrupt_leaves_nothing_half_done(which, monkeypatch):
    from olsq.online.forms.factor import members

    X = np.random.default_rng(0).standard_normal((40, 5, 3))
    bank = olsq.FilterBank(40, n_features=3, ridge=0.0)
    rows = X if which is None else X[which]
    before = bank._state_or_raise().copy()
    done = members.learn

    def interrupted(*arguments):
        done(*arguments)
        if which is not None:
            raise KeyboardInterrupt
        raise MemoryError

    monkeypatch.setattr(members, "learn", interrupted)
    with pytest.raises((KeyboardInterrupt, MemoryError)):
        bank.partial_fit(rows, rows.sum(2), which=which)
    if which is not None:
        for name, array in before.arrays().items():
            np.testing.assert_array_equal(array, getattr(bank._state, name), err_msg=name)


def test_work_is_shared_out_and_finished():
    assert share(np.zeros(0), 1.0) == [0, 0]
    assert share(np.ones(10), 100.0) == [0, 10]
    assert len(share(np.ones(1000), 1.0)) == cores() + 1
    seen = np.zeros(100, int)

    def work(begin, end):
        seen[begin:end] += 1

    in_pieces(work, [0, 30, 100])
    assert (seen == 1).all()
    with pytest.raises(ZeroDivisionError):
        in_pieces(lambda begin, end: 1 // begin, [0, 1, 2])
    assert uninterrupted(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)


def bank_of_two():
    return olsq.FilterBank(2).partial_fit(np.eye(2), [1.0, 2.0])


ROW, Y = np.eye(2), np.ones(2)
REFUSALS = {
    "n of text": (lambda: olsq.FilterBank("2").partial_fit(ROW, Y), TypeError, "n must be"),
    "n of 0": (lambda: olsq.FilterBank(0).partial_fit(ROW, Y), ValueError, "n must be"),
    "features": (lambda: bank_of_two().partial_fit(np.ones((2, 3)), Y), ValueError, "3 features"),
    "filters": (lambda: bank_of_two().partial_fit(np.ones((3, 2)), Y), ValueError, r"\(2, d\)"),
    "y": (lambda: bank_of_two().partial_fit(ROW, np.ones(3)), ValueError, "y must have shape"),
    "no y": (lambda: bank_of_two().partial_fit(ROW, None), ValueError, "requires y"),
    "targets": (lambda: bank_of_two().partial_fit(ROW, np.ones((2, 2))), ValueError, "targets"),
    "which": (lambda: bank_of_two().partial_fit(ROW, Y, which=[0, 2]), ValueError, "filter 2"),
    "mask": (lambda: bank_of_two().predict(ROW, which=[True, False]), TypeError, "flatnonzero"),
    "forget": (lambda: bank_of_two().partial_fit(ROW, Y, forget=1.5), ValueError, "forget must"),
    "forgets": (lambda: bank_of_two().partial_fit(ROW, Y, forget=np.ones(3)), ValueError,
                "forget must be a number"),
    "weight": (lambda: bank_of_two().partial_fit(ROW, Y, -Y), ValueError, "sample_weight must"),
    "ridge": (lambda: olsq.FilterBank(2, ridge=np.ones(3)).partial_fit(ROW, Y), ValueError,
              "ridge must be"),
    "ridge < 0": (lambda: olsq.FilterBank(2, ridge=-1.0).partial_fit(ROW, Y), ValueError, ">= 0"),
    "method": (lambda: olsq.FilterBank(2, method="qr").partial_fit(ROW, Y), ValueError, "method"),
    "both": (lambda: olsq.FilterBank(2, forget=0.9, half_life=3).partial_fit(ROW, Y), ValueError,
             "cannot be combined"),
    "missing": (lambda: olsq.FilterBank(2, missing="raise").partial_fit(ROW * np.nan, Y),
                ValueError, "NaN"),
    "huge": (lambda: bank_of_two().partial_fit(ROW * 1e200, Y), ValueError, "overflow"),
    "text": (lambda: bank_of_two().partial_fit([["a", "b"]] * 2, Y), ValueError, "X"),
    "step": (lambda: bank_of_two().step(ROW, Y, which=[0, 0]), ValueError, "one row for each"),
    "changed": (lambda: bank_of_two().set_params(ridge=3.0).partial_fit(ROW, Y), ValueError,
                "ridge is 3.0 now"),
    "unfitted": (lambda: olsq.FilterBank(2).predict(ROW), ValueError, "n_features"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_argument(name):
    call, kind, match = REFUSALS[name]
    with pytest.raises(kind, match=match):
        call()


def test_a_refused_call_changes_nothing():
    bank = bank_of_two()
    before = bank._state.copy()
    with pytest.raises(ValueError):
        bank.partial_fit(np.array([[1.0, 2.0], [1e200, 0]]), Y)
    for name, array in before.arrays().items():
        np.testing.assert_array_equal(array, getattr(bank._state, name))


def test_no_filters_asked():
    bank = bank_of_two()
    assert bank.partial_fit(np.empty((0, 2)), [], which=[]).residual_.shape == (0,)
    assert bank.predict(np.empty((0, 2)), which=[]).shape == (0,)
    assert bank.partial_fit(np.empty((2, 0, 2)), np.empty((2, 0))).predict(ROW).shape == (2,)


# -- one filter at a time -------------------------------------------------------------------------

EACH = {
    "forget": {"forget": np.array([0.9, 0.95, 1.0])},
    "forget in a list": {"forget": [0.9, 0.95, 1.0]},
    "half_life": {"half_life": np.array([5.0, 20.0, 80.0])},
    "ridge": {"ridge": np.array([[0.1, 0.2], [1.0, 2.0], [3.0, 4.0]])},
    "one for all": {"forget": 0.9},
    "sqrt": {"forget": np.array([0.9, 0.95, 1.0]), "method": "sqrt"},
    "sandwich": {"forget": np.array([0.9, 0.95, 1.0]), "cov": "sandwich"},
}


@pytest.mark.full
@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("name", EACH)
def test_one_filter_learns_with_its_own_parameters(name, m):
    """A number, a list of one and rows for all filters in which only one has weight: the same."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal((40, m) if m else 40)
    one, listed, several = (olsq.FilterBank(3, n_features=2, **EACH[name]) for _ in range(3))
    for t in range(40):
        i = int(rng.integers(3)) - (3 if t % 2 else 0)
        if t % 3:
            one.partial_fit(X[t], y[t], which=i)
        else:
            prediction, residual = one.step(X[t], y[t] if m else float(y[t]), which=i)
            np.testing.assert_allclose(prediction + residual, y[t], rtol=1e-6)
        assert one.residual_.shape == y[t].shape
        listed.partial_fit(X[t : t + 1], y[t : t + 1], which=[i])
        several.partial_fit(X[None, t : t + 1], y[None, t : t + 1], which=[i])
        np.testing.assert_allclose(one.residual_, listed.residual_[0], rtol=1e-5, atol=1e-6)
    for other in (listed, several):
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(one.n_samples_seen_, other.n_samples_seen_)
    one.partial_fit(X, y, which=2)
    listed.partial_fit(X[None], y[None], which=[2])
    np.testing.assert_allclose(one[2].coef_, listed[2].coef_, rtol=1e-5, atol=1e-6)
    again = olsq.loads(one.to_bytes())
    for bank in (one, again):
        bank.partial_fit(X[0], y[0], which=1)
    np.testing.assert_array_equal(one.coef_, again.coef_)
    draws = one.sample_coef(0, 4, which=1, sigma2=1.0)
    assert draws.shape == ((4, m, 2) if m else (4, 2))
    np.testing.assert_array_equal(draws, one.sample_coef(0, 4, which=[1], sigma2=1.0)[:, 0])


def test_the_short_way_refuses_what_the_general_way_refuses():
    forget = np.array([0.9, 0.95])
    bank = olsq.FilterBank(2, forget=forget).partial_fit(ROW, Y)
    x = np.array([1.0, 2.0])
    bank.partial_fit(x, 1.0, which=1)
    before = bank._state.copy()

    def bad_gate():
        forget[0] = 1.5  # of another filter: the array is refused as a whole
        try:
            bank.partial_fit(x, 1.0, which=1)
        finally:
            forget[0] = 0.9

    for call, match in (
        (lambda: bank.partial_fit(x, 1.0, which=2), "filter 2"),
        (lambda: bank.partial_fit(x[:1], 1.0, which=1), "2 features"),
        (lambda: bank.partial_fit(x * 1e200, 1.0, which=1), "overflow"),
        (lambda: bank.partial_fit(x, np.ones(2), which=1), "y must have no axis of targets"),
        (lambda: bank.partial_fit(x, 1.0, [1.0], which=1), r"must be a number, got an array"),
        (lambda: bank.set_params(missing="raise").partial_fit(x * np.nan, 1.0, which=1), "NaN"),
        (lambda: bank.set_params(ridge=3.0).step(x, 1.0, which=1), r"ridge is 3\.0 now"),
        (lambda: bank.set_params(ridge=0.0) and bad_gate(), "forget must"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
        for name, array in before.arrays().items():
            np.testing.assert_array_equal(array, getattr(bank._state, name), err_msg=name)
    with pytest.raises(TypeError, match="integers"):
        bank.partial_fit(x, 1.0, which=True)
    with pytest.raises(ValueError, match="half_life must be a number or one number per filter"):
        olsq.FilterBank(2, half_life=np.ones(3)).partial_fit(ROW, Y)


def test_shared_contexts_are_answered_as_rows_of_their_own():
    X, y, _, _ = many("mixed units")
    bank = olsq.FilterBank(N, ridge=0.1).partial_fit(X[:, :9], y[:, :9, 0])
    bank.partial_fit(X[0, 9], 1.0, forget=0.0, which=0)  # in square-root form
    for row in (X[0, 20], X[0, 20] * 1e-160, np.array([1.0, np.nan, 2.0])):
        rows = np.tile(row, (N, 1))
        np.testing.assert_array_equal(bank.predict(row), bank.predict(rows))
        np.testing.assert_allclose(bank.leverage(row), bank.leverage(rows), rtol=1e-12)


def test_a_step_takes_each_filter_once_by_whatever_number():
    bank = olsq.FilterBank(2, n_features=1, fit_intercept=False)
    for which in ([1, -1], [1, 1], [0, -2]):
        with pytest.raises(ValueError, match="step takes one row for each filter"):
            bank.step([[1.0], [1.0]], [4.0, 4.0], which=which)
    assert not bank.n_samples_seen_.any()
    assert bank.step([[1.0], [1.0]], [4.0, 4.0], which=[0, -1])[1].tolist() == [4.0, 4.0]
