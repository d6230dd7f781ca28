"""The compiled gradient of NumPy sequences against dense float64 solves, over several blocks.

A chunk that fails is solved token by token, to the same digits, so that one test calls the kernel
of a chunk by itself.
"""

from __future__ import annotations

import numpy as np
import pytest
from sequence_cases import error

import olsq
from olsq.reference import sequence as oracle
from olsq.sequence.numpy import blas, chunk, chunk_exact

T, M = 75, 3
RNG = np.random.default_rng(11)
AT = np.arange(T)
CASES = {
    "gates near 1": {},
    "no forgetting": {"forget": 1.0},
    "resets": {"forget": np.where(np.isin(AT, [0, 9, 16, 31, 32, 33, 60]), 0.0, 0.999)},
    "harsh gates": {"forget": np.where(AT % 3 == 0, 0.05, 0.9)},
    "a ridge per token": {"ridge": lambda d: 0.25 * np.exp(0.2 * RNG.uniform(-1, 1, (T, d)))},
    "ridges far apart": {"ridge": lambda d: 10.0 ** RNG.uniform(-1, 1, (T, d))},
    "ridges of features": {"ridge": lambda d: 10.0 ** RNG.uniform(-1, 1, d)},
    "discounted": {"ridge_mode": "discounted"},
    "weights": {"weight": np.where(AT % 3 == 0, 0.0, 0.3)},
    "a state": {"state": True},
}
SIZES = pytest.mark.parametrize("d", [5, 20])  # blocks of 16 tokens, and of 32


def problem(d, forget=0.999, ridge=0.25, ridge_mode="fixed", weight=1.0, state=False):
    """One stream: arrays (keys, values, queries, upstream gradient), and options."""
    rng = np.random.default_rng(d)
    keys, queries = rng.normal(size=(2, T, d)) / d**0.5
    arrays = [keys, rng.normal(size=(T, M)), queries, rng.normal(size=(T, M))]
    options = {
        "forget": np.broadcast_to(forget, T).astype(float),
        "weight": np.broadcast_to(weight, T).astype(float),
        "ridge": np.asarray(ridge(d) if callable(ridge) else ridge, float),
        "ridge_mode": ridge_mode,
    }
    if state:
        half = rng.normal(size=(d, d))
        options["state"] = olsq.Moments(half @ half.T, rng.normal(size=(M, d)))
    return arrays, options


def assert_close(got, want, tolerance=1e-10, without=None):
    """Compare all gradients, each relative to its largest entry."""
    for name, slope in got._asdict().items():
        expected = want[name].copy()
        if without is not None and name in ("keys", "values", "weight"):
            expected[without] = 0
        assert error(slope, expected) < tolerance, name


@SIZES
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_dense_solves(case, d):
    arrays, options = problem(d, **CASES[case])
    got = olsq.online_lstsq_vjp(*arrays, **options)
    assert_close(got, oracle.gradients(*arrays, **options))


@SIZES
@pytest.mark.parametrize("ridge_mode", ["fixed", "discounted"])
@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_inputs_may_have_any_units(size, ridge_mode, d):
    arrays, options = problem(d, ridge_mode=ridge_mode)
    one = olsq.online_lstsq_vjp(*arrays, **options)
    keys, values, queries, upstream = arrays
    options["ridge"] = size**2 * options["ridge"]
    units = [size * keys, values / size, size * queries, upstream]
    got = olsq.online_lstsq_vjp(*units, **options)
    assert_close(got, oracle.gradients(*units, **options))
    assert error(got.forget * size, one.forget) < 1e-10  # the outputs are those of units 1 / size


@SIZES
def test_outputs_without_an_upstream_gradient_are_not_solved(d):
    arrays, options = problem(d)
    upstream = arrays[3]
    upstream[:33] = upstream[50:66] = upstream[70] = 0  # a block and more, and one token
    got = olsq.online_lstsq_vjp(*arrays, **options)
    assert_close(got, oracle.gradients(*arrays, **options))
    assert not got.queries[upstream[:, 0] == 0].any()
    upstream[:] = 0
    for slope in olsq.online_lstsq_vjp(*arrays, **options):
        assert not slope.any()


@SIZES
@pytest.mark.parametrize("lost", ["keys", "values"])
def test_lost_samples_silence_outputs_until_the_next_reset(lost, d):
    arrays, options = problem(d, forget=np.where(AT == 40, 0.0, 0.999))
    keys, values, queries, upstream = arrays
    options["weight"][23] = 0
    upstream[23:40] = 0
    queries[60], upstream[60] = 1.0, 0
    want = oracle.gradients(*arrays, **options)
    options["weight"][23] = 1
    upstream[23:40] = 1
    (keys if lost == "keys" else values)[23] = np.nan
    queries[60], upstream[60] = np.inf, 1
    got = olsq.online_lstsq_vjp(*arrays, **options)
    assert_close(got, want, without=23)


@pytest.mark.full
@pytest.mark.parametrize("gate", [0.999, 1.0])
@pytest.mark.parametrize("own", [False, True], ids=["one ridge", "a ridge per token"])
def test_the_kernel_of_a_chunk_solves_all_of_its_tokens(own, gate):
    d, count = 20, 32
    each = {"ridge": CASES["a ridge per token"]["ridge"]} if own else {}
    (keys, values, queries, upstream), options = problem(d, forget=gate, state=True, **each)
    gram, cross = options["state"]
    W, scratch, spare = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
    ridge = options["ridge"] if own else np.full((1, d), options["ridge"])
    samples = keys, values, queries, options["weight"], options["forget"], ridge
    scales = chunk_exact.compute_chunk_scales(options["forget"], ridge, 0, count, not own)
    A = scales[0][0] * gate * gram + np.diag(scales[2])
    assert blas.whiten(blas.addresses(), A, W, scratch, spare) == d
    x, e, work = np.zeros((T, d)), np.zeros((T, d)), (A, W, scratch, spare)
    limits = (*chunk_exact.LIMITS_DOUBLE, -1)
    span, moments, sides = (0, count, count), gate * cross, (upstream, x, e)
    solved = chunk.solve_chunk_pairs(
        blas.addresses(), samples, span, scales, moments, work, limits, sides
    )
    assert solved == count
    path = oracle.solve(keys, values, queries, **options)
    right = np.einsum("tmd,tm->td", path.crosses[1:], upstream)
    want = np.linalg.solve(path.systems, right[..., None])[..., 0]
    assert error(x[:count], path.solution[:count]) < 1e-12
    assert error(e[:count], want[:count]) < 1e-12
    assert not x[count:].any()
