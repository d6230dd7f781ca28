"""NumPy's whole sequences on streams of a few tokens: what a fallback or a bound would hide.

A chunk that fails is solved token by token, to the same digits: answers cannot tell.  The steps
that tokens report can, and so do the kernels by themselves.
"""

from __future__ import annotations

import numpy as np
import pytest
from sequence_cases import unit

import olsq
from olsq.reference import iterations
from olsq.sequence.numpy import blas, chunk, corrections, tokens
from olsq.solvers.chunk_exact import MOST_CORRECTIONS, correction_error

T, D, M = 21, 5, 2  # chunks of 16: a whole one and a part
EPS = {np.float64: 2.0**-52, np.float32: 2.0**-23}
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
FIXED = {
    "default": None,
    "chunk-exact": olsq.ChunkExact(chunk=8, tol=1e-12),
    "cg": olsq.ConjugateGradient(60, 1e-14, chunk=8),
    "cg, chunk": olsq.ConjugateGradient(60, 1e-14, chunk=8, preconditioner="chunk"),
    "dense": olsq.Dense(chunk=8),
    "chebyshev": olsq.Chebyshev(150, chunk=8),
    "neumann": olsq.Neumann(1500, chunk=8),
}


def stream(gate=1.0, ridge=0.25, weight=1.0, dtype=np.float64, seed=0):
    """Keys, values, queries, and options, all in ``dtype``."""
    rng = np.random.default_rng(seed)
    keys, queries = unit(rng.normal(size=(2, T, D)))
    arrays = [x.astype(dtype) for x in (keys, rng.normal(size=(T, M)), queries)]
    options = {"forget": np.broadcast_to(gate, T), "weight": np.broadcast_to(weight, T)}
    return arrays, {**{n: x.astype(float) for n, x in options.items()}, "ridge": ridge}


def dense(arrays, options, discounted=False):
    """Per token: the answer of smallest norm, the system, |x| and the trace of H."""
    keys, values, queries = (np.asarray(a, float) for a in arrays)
    ridge = np.broadcast_to(np.asarray(options["ridge"], float), (T, D))
    gram, cross, out = np.zeros((D, D)), np.zeros((M, D)), []
    if discounted:
        gram, ridge = np.diag(ridge[0]), np.zeros((T, D))
    for t in range(T):
        w, k = options["weight"][t], keys[t]
        gram, cross = options["forget"][t] * gram, options["forget"][t] * cross
        if w > 0:
            gram, cross = gram + w * np.outer(k, k), cross + w * np.outer(values[t], k)
        system = gram + np.diag(ridge[t])
        x = np.linalg.pinv(system, rcond=1e-11, hermitian=True) @ queries[t]
        out.append((cross @ x, system, np.linalg.norm(x), np.trace(gram)))
    return [np.array(x) for x in zip(*out, strict=True)]


RNG = np.random.default_rng(7)
HARD = {
    "no forgetting": {},
    "corrections": {"gate": 0.98},
    "ridges of features": {"gate": 0.97, "ridge": np.array([0.1, 0.2, 0.4, 0.8, 1.6])},
    "a ridge each": {"gate": 0.99, "ridge": 0.25 * np.exp(0.2 * RNG.uniform(-1, 1, (T, D)))},
    "a ridge each, no forgetting": {"ridge": 0.3 * np.exp(0.2 * RNG.uniform(-1, 1, (T, D)))},
    "ridges far apart": {"gate": 0.99, "ridge": 10.0 ** RNG.uniform(-1, 1, (T, D))},
    "harsh": {"gate": np.where(np.arange(T) % 3, 0.05, 0.9)},
    "resets": {"gate": np.where(np.isin(np.arange(T), [4, 5, 17]), 0.0, 0.99)},
    "weights": {"gate": 0.99, "weight": np.where(np.arange(T) % 3, 0.3, 0.0)},
}


@pytest.mark.full
@pytest.mark.parametrize("name", HARD)
def test_every_solver_is_right_and_bounds_its_error_as_documented(name):
    arrays, options = stream(**HARD[name])
    arrays[0][options["weight"] == 0] = np.nan  # absent
    value, _, size, trace = dense(arrays, options)
    ridge = np.broadcast_to(options["ridge"], (T, D))
    rounded = (8 + 2 * T**0.5) * EPS[np.float64]
    bound = rounded * ((trace + ridge.max(1)) * size + 1) / ridge.min(1)
    for solver, chosen in FIXED.items():
        fit = olsq.online_lstsq(*arrays, **options, solver=chosen)
        assert np.abs(fit.value - value).max() < 1e-9, solver
        assert (fit.stats.bound >= bound * (1 - 1e-9)).all(), solver
        if solver in ("default", "dense", "cg, chunk"):  # they leave no more than rounding
            assert (fit.stats.bound < 2 * bound).all(), solver


@pytest.mark.parametrize("gate", [1.0, 0.98])
def test_streams_of_a_batch_are_streams_of_their_own(gate):
    alone = [stream(gate, seed=seed) for seed in range(3)]
    arrays = [np.stack(same) for same in zip(*(arrays for arrays, _ in alone), strict=True)]
    for solver, chosen in FIXED.items():
        both = olsq.online_lstsq(*arrays, **alone[0][1], solver=chosen)
        assert both.stats.steps.shape == (3, T), solver
        for i, (own, options) in enumerate(alone):
            fit = olsq.online_lstsq(*own, **options, solver=chosen)
            np.testing.assert_allclose(both.value[i], fit.value, rtol=0, atol=1e-13)
            np.testing.assert_array_equal(both.stats.steps[i], fit.stats.steps)


DISCOUNTED = {
    **{name: FIXED[name] for name in ("default", "chunk-exact", "cg", "dense", "neumann")},
    "recursive": olsq.Recursive(chunk=8),
}


@pytest.mark.parametrize("name", ["no forgetting", "ridges of features", "weights"])
def test_every_solver_is_right_with_a_ridge_that_is_forgotten(name):
    arrays, options = stream(**HARD[name])
    arrays[0][options["weight"] == 0] = np.nan
    value, systems, size, trace = dense(arrays, options, discounted=True)
    floor = np.min(options["ridge"]) * np.cumprod(options["forget"])
    bound = (8 + 2 * T**0.5) * EPS[np.float64] * (trace * size + 1) / floor
    for solver, chosen in DISCOUNTED.items():
        fit = olsq.online_lstsq(*arrays, **options, ridge_mode="discounted", solver=chosen)
        assert np.abs(fit.value - value).max() < 1e-9, solver
        left = np.abs(fit.stats.bound / bound - 1)
        assert left.max() < (1 if solver in ("default", "dense") else 1e9), solver
        np.testing.assert_allclose(fit.state.gram, systems[-1], rtol=1e-12, atol=1e-12)


def test_one_ridge_for_all_tokens_and_no_forgetting_is_recursive_too():
    arrays, options = stream(
        **HARD["no forgetting"] | {"ridge": HARD["ridges of features"]["ridge"]}
    )
    fit = olsq.online_lstsq(*arrays, **options, solver=olsq.Recursive(chunk=8))
    assert np.abs(fit.value - dense(arrays, options)[0]).max() < 1e-9
    arrays, options = stream(**HARD["a ridge each, no forgetting"])
    with pytest.raises(ValueError, match="Recursive needs one ridge for all tokens, got one per"):
        olsq.online_lstsq(*arrays, **options, solver=olsq.Recursive(chunk=8))


def test_streams_without_features_have_answers_and_gradients_of_their_shapes():
    keys, values = np.zeros((3, 0)), np.ones((3, M))
    for solver in FIXED.values():
        fit = olsq.online_lstsq(keys, values, keys, ridge=1.0, solver=solver)
        np.testing.assert_array_equal(fit.value, np.zeros((3, M)))
        slopes = olsq.online_lstsq_vjp(keys, values, keys, values, ridge=1.0, solver=solver)
        assert slopes.keys.shape == (3, 0)
        assert not slopes.values.any()


@pytest.mark.full
@DTYPES
def test_decoding_begins_fresh_and_takes_queries_of_any_size(dtype):
    arrays, options = stream(0.9, dtype=dtype)
    state = olsq.online_lstsq(*arrays, **options).state
    state = olsq.sequence.start_decoding(state, ridge=0.25)
    assert state.age == 0
    for t in range(5):
        state = olsq.update(state, arrays[0][t], arrays[1][t], forget=0.8)
        assert state.age == t + 1
    q = arrays[2][0]
    value = olsq.query(state, q)
    system = state.moments.gram.astype(float) + 0.25 * np.eye(D)
    want = state.moments.cross.astype(float) @ np.linalg.solve(system, q.astype(float))
    np.testing.assert_allclose(value, want, rtol=1e-10 if dtype == np.float64 else 1e-4)
    for power in (-60, 60) if dtype == np.float32 else (-600, 600):  # squared, it is none
        size = dtype(2.0) ** dtype(power)
        np.testing.assert_array_equal(olsq.query(state, size * q), size * value)


@pytest.mark.parametrize("length", [0, 1, 9])  # 9: a chunk of 8, and one token
def test_short_streams(length):
    arrays, options = stream(0.9)
    value, _, _, _ = dense(arrays, options)
    arrays = [a[:length] for a in arrays]
    options = {n: x if n == "ridge" else x[:length] for n, x in options.items()}
    for solver, chosen in FIXED.items():
        fit = olsq.online_lstsq(*arrays, **options, solver=chosen)
        assert fit.value.shape == (length, M)
        assert np.abs(fit.value - value[:length]).max(initial=0) < 1e-9, solver


def needed(low, high, tolerance):
    """Corrections for a spectrum, by the documented bound; None where not even one iterate."""
    gain = max(high - 1, 1 - low)
    if gain <= tolerance:
        return None
    error = [min(gain, 1) * correction_error(high / low, k) for k in range(MOST_CORRECTIONS + 1)]
    return int(np.argmax(np.array(error) <= tolerance))


@DTYPES
def test_a_chunk_takes_the_corrections_that_its_bound_asks_for(dtype):
    tolerance = 1e-14 if dtype == np.float64 else 1e-6
    for gate in (1.0, 1 - 1e-9, 1 - 1e-4, 0.999, 0.99):
        arrays, options = stream(gate, dtype=dtype)
        steps = olsq.online_lstsq(*arrays, **options).stats.steps
        _, systems, _, _ = dense(arrays, options)
        for first, count in ((0, 16), (16, T - 16)):
            before = systems[first] - np.outer(arrays[0][first], arrays[0][first])
            middle = (count - 1) / 2
            ratio = gate ** (middle - np.arange(count))
            before = (before - 0.25 * np.eye(D)) * ratio[0] + 0.25 * np.eye(D)
            shares = 0.25 * np.linalg.inv(before)
            shares = [np.linalg.norm(shares, 2), min(1.0, np.linalg.norm(shares))]
            least, most = (
                needed(1 + s * (ratio.min() - 1), 1 + s * (ratio.max() - 1), tolerance)
                for s in shares
            )
            own = set(steps[first : first + count].tolist())
            assert len(own) == 1, (gate, first)  # all of it went as a chunk
            own = own.pop()
            assert (0 if least is None else least + 1) <= own, (gate, first)
            assert own <= (0 if most is None else most + 1), (gate, first)


def test_harsh_gates_take_no_corrections():
    arrays, options = stream(**HARD["harsh"])
    assert not olsq.online_lstsq(*arrays, **options).stats.steps.any()


@pytest.mark.parametrize("unit_of", [1e-6, 1.0, 1e6])
def test_a_singular_system_answers_with_the_smallest_solution(unit_of):
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(D, 4)))[0].T
    keys = rng.normal(size=(T, 4))
    keys[:14, 2:] = 0  # of rank 2, from 14 on of rank 3, from 18 on of rank 4
    keys[14:18, 3] = 0
    arrays, options = stream(ridge=0.0)
    arrays[0], arrays[2] = unit_of * keys @ basis, rng.normal(size=(T, D))
    value, _, _, _ = dense(arrays, options)
    fit = olsq.online_lstsq(*arrays, **options)
    got, want = fit.value * unit_of, value * unit_of
    far = np.abs(got - want).max(1) / np.abs(want).max(1)
    assert far[2:14].max() < 1e-8
    assert far.max() < 1e-5  # the token that opens a direction may be badly conditioned
    assert np.isinf(fit.stats.bound).all()
    decoded = olsq.query(fit.state, arrays[2][-1], ridge=0.0)
    np.testing.assert_allclose(decoded, value[-1], rtol=1e-6)


def test_a_singular_chunk_whose_keys_stay_in_its_range_is_solved_as_a_whole():
    arrays, options = stream(0.98, ridge=np.array([0.0, 0.0, 0.1, 0.0, 0.0]))
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(D, 2)))[0].T
    arrays[0] = rng.normal(size=(T, 2)) @ basis
    fit = olsq.online_lstsq(*arrays, **options, solver=olsq.ChunkExact(chunk=8))
    value, _, _, _ = dense(arrays, options)
    assert np.abs(fit.value[8:] - value[8:]).max() < 1e-9 * np.abs(value[8:]).max()
    assert fit.stats.steps[8:16].all()  # corrections, which single tokens do not take


def test_one_key_fewer_than_features_is_never_taken_for_enough():
    for seed in range(60):  # a last pivot that should be 0 is rounding, of any size
        rng = np.random.default_rng(seed)
        keys, values, queries = (rng.normal(size=(D - 1, n)) for n in (D, M, D))
        fit = olsq.online_lstsq(keys, values, queries, ridge=0.0)
        want = queries[-1] @ np.linalg.pinv(keys) @ values
        np.testing.assert_allclose(fit.value[-1], want, rtol=1e-6, err_msg=str(seed))
        decoded = olsq.query(fit.state, queries[-1], ridge=0.0)
        np.testing.assert_allclose(decoded, want, rtol=1e-6, err_msg=str(seed))


def test_keys_outside_the_range_are_found_in_any_units():
    W, system = np.zeros((D, D)), np.zeros((D, D))
    W[0, 0] = W[1, 1] = system[0, 0] = system[1, 1] = 1.0  # a projection on two directions
    keys, weights = np.zeros((6, D)), np.ones(6)
    keys[:, :2], keys[4, 3], keys[2, 4], weights[2] = 1.0, 1e-3, 1.0, 0.0  # an absent one at 2
    for size in (1e-9, 1.0, 1e9):
        assert tokens.count_keys_in_range(W, system, size * keys, weights, 0, 6) == 4
        assert tokens.count_keys_in_range(W, system, size * keys, weights, 3, 3) == 1
        assert tokens.count_keys_in_range(W, system, size * keys, weights, 0, 4) == 4


@pytest.mark.parametrize("n", [3, 40])  # one block, and three
def test_factors_of_regular_and_of_singular_matrices(n):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
    A = A @ A.T
    W, spare = np.zeros((n, n)), np.zeros((n, n))
    assert blas.inverse_factor(blas.addresses(), A.copy(), W, n, 0.0)
    np.testing.assert_allclose(W @ A @ W.T, np.eye(n), atol=1e-4)
    assert not np.triu(W, 1).any()
    scratch = np.zeros((n, n))
    for rank in (0, 1, n - 1, n - 1, n - 1):
        B = rng.normal(size=(n, rank)) * 10.0 ** rng.uniform(-1, 1, (n, 1))
        B = B @ B.T
        assert blas.whiten(blas.addresses(), B, W, scratch, spare) == rank
        want = np.linalg.pinv(B, rcond=1e-11, hermitian=True)
        np.testing.assert_allclose(W.T @ W, want, atol=1e-7 * np.abs(want).max(initial=1))
    assert blas.whiten(blas.addresses(), np.full((n, n), np.inf), W, scratch, spare) == -1


def test_the_ridge_that_is_left_is_bounded_from_both_sides():
    rng = np.random.default_rng(6)
    for size in (1e-3, 0.1, 0.5):
        W, B = size * rng.normal(size=(D, D)), np.zeros((D, D))
        reference = rng.uniform(0.5, 2, D)
        bound = corrections.ridge_product(blas.addresses(), W, reference, B)
        want = W @ np.diag(reference) @ W.T
        np.testing.assert_allclose(B, want, atol=1e-14)
        rows = np.abs(want).sum(1).max()
        assert bound == pytest.approx(min(1, rows, np.linalg.norm(want)), rel=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_corrections_are_the_chebyshev_iterates_of_the_plain_loop(steps):
    count, rng = 3, np.random.default_rng(9)
    W, ratio = rng.normal(size=(D, D)), np.array([0.5, 1.0, 2.0])
    gap, q = rng.uniform(0.1, 1, (count, D)), rng.normal(size=(count, D))
    low, high = np.array([0.5, 1.0, 0.7]), np.array([3.0, 9.0, 20.0])  # bounds need not be right
    got, scores, inner = q.copy(), np.zeros((count, count)), np.zeros((count, D))
    whitened = np.zeros((count, D)), W, np.zeros((D, D)), ratio, gap, False
    plan = low, high, steps, np.zeros((D, D))
    corrections.solve_whitened(blas.addresses(), got, whitened, plan, None, False, scores, inner)
    plain, unchanged = np.zeros((count, D)), q.copy()
    corrections.solve_whitened(
        blas.addresses(), unchanged, whitened, plan, None, True, scores, plain
    )
    for t in range(count):
        left = W @ np.diag(gap[t]) @ W.T
        x = iterations.chebyshev(
            np.eye(D) + ratio[t] * left, ratio[t] * q[t], steps=steps, low=low[t], high=high[t]
        )
        np.testing.assert_allclose(got[t], q[t] - left @ x, rtol=1e-9)
        np.testing.assert_allclose(inner[t], ratio[t] * got[t], rtol=1e-12)
        np.testing.assert_allclose(plain[t], x, rtol=1e-9)


@pytest.mark.full
def test_residuals_and_backward_errors_are_those_of_the_dense_system():
    count, rng = 4, np.random.default_rng(8)
    X, x = rng.normal(size=(2 * count, D)), rng.normal(size=(count, D))
    x[2] = X[count + 2] = 0.0  # a query of 0
    A = rng.normal(size=(D, D))
    A = A @ A.T
    ratio, reference = rng.uniform(0.5, 2, count), rng.uniform(0.1, 1, D)
    ridge = rng.uniform(0.1, 1, (count, D))
    norms, backward = np.zeros((count, 2)), np.zeros(count)
    scales, scores = (ratio, ridge, reference, False), np.zeros((count, count))
    system = A + np.diag(reference)
    chunk.true_residual(blas.addresses(), X, x, system, scales, scores, norms, backward)
    np.testing.assert_allclose(scores, np.tril(x @ X[:count].T), rtol=1e-12)
    for t in range(count):
        q, moments = X[count + t], A + X[: t + 1].T @ X[: t + 1]
        left = np.linalg.norm(q - (moments / ratio[t] + np.diag(ridge[t])) @ x[t])
        assert norms[t] == pytest.approx((left, np.linalg.norm(x[t])))
        if t == 2:
            assert backward[t] == 0
            continue
        trace = (np.trace(moments) + reference.sum()) / ratio[t]
        want = left / (np.linalg.norm(q) + trace * np.linalg.norm(x[t]))
        assert backward[t] == pytest.approx(want)


@DTYPES
def test_samples_too_large_for_their_dtype_are_no_other_tokens_matter(dtype):
    arrays, options = stream(0.99, dtype=dtype)
    want = olsq.online_lstsq(*arrays, **options).value
    arrays[1][9] = np.finfo(dtype).max
    value = olsq.online_lstsq(*arrays, **options).value
    np.testing.assert_allclose(value[:9], want[:9], rtol=1e-12 if dtype == np.float64 else 1e-5)
    short = [a[:9] for a in arrays]
    options = {n: x if n == "ridge" else x[:9] for n, x in options.items()}
    alone = olsq.online_lstsq(*short, **options).value
    np.testing.assert_allclose(alone, want[:9], rtol=1e-12 if dtype == np.float64 else 1e-5)


def test_what_truncates_is_not_unrolled_through_factors():
    arrays, options = stream(0.99)
    few = olsq.ChunkExact(corrections=1)
    with pytest.raises(ValueError, match=r'ChunkExact\(corrections=1\).*use adjoint="implicit"'):
        olsq.online_lstsq(*arrays, **options, solver=few, adjoint="unrolled")
    assert olsq.ChunkExact().check_unrolled() is None  # its answer is the exact one
    with pytest.raises(ValueError, match="steps must be an integer >= 0, got -1"):
        olsq.Chebyshev(steps=-1)
    with pytest.raises(ValueError, match=r"eigenvalue_ratio must be finite and > 0"):
        olsq.Chebyshev(eigenvalue_ratio=0)
