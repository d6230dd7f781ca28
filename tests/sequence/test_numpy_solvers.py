"""Every solver on NumPy arrays: the table's claims, JAX's steps, derivatives, decoding."""

from __future__ import annotations

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import (
    IDS,
    LEADING,
    PAIRS,
    D,
    M,
    T,
    claims,
    error,
    exact,
    for_checks,
    stack,
    start,
    streams,
    unit,
)

import olsq
from olsq.reference import iterations
from olsq.sequence import DecodeState, merge_moments, start_decoding
from olsq.sequence import jax as in_jax
from olsq.testing import check_solver

pytestmark = pytest.mark.usefixtures("one_target")

ROWS = pytest.mark.parametrize(("row", "mode"), PAIRS, ids=IDS)
SLOW = pytest.mark.slow
# 4,000 terms of Neumann's series take a second a stream: the discounted problem runs them here.
QUICK = {(name, "f64") for name in IDS if name != "neumann-fixed"} | {(n, "f32") for n in LEADING}
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])


def given(s, mode, state=None):
    """Arguments of a stacked group: arrays, and options."""
    ridge = None if mode == "discounted" and state is not None else s["ridge"]
    options = {"forget": s["forget"], "weight": s["weight"], "ridge": ridge, "ridge_mode": mode}
    return (s["keys"], s["values"], s["queries"]), {**options, "state": state}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "mode", "dtype"),
    [pytest.param(row, mode, dtype, id=f"{name}-{bits}", marks=marks)
     for (row, mode), name in zip(PAIRS, IDS, strict=True)
     for dtype, bits in ((np.float64, "f64"), (np.float32, "f32"))
     for marks in [SLOW if (name, bits) not in QUICK else ()]],
)  # fmt: skip
def test_every_property(row, mode, dtype):
    for group in filter(None, claims(row, mode)):
        check_solver(
            row.solver(dtype), backends=["numpy"], ridge_modes=[mode], dtypes=[dtype],
            streams=for_checks(group), error=row.rate, max_examples=0,
        )  # fmt: skip


@pytest.mark.slow
@ROWS
def test_errors_are_within_their_bounds(row, mode):
    for group in filter(None, claims(row, mode)):  # in float64 the oracle is no better
        s = stack(group, np.float32)
        arrays, options = given(s, mode, start(group, np.float32, mode))
        fit = olsq.online_lstsq(*arrays, **options, solver=row.solver(np.float32))
        assert isinstance(fit.value, np.ndarray)
        for i, name in enumerate(group):
            wide = {n: x[i].astype(np.float64) for n, x in s.items()}
            path = exact(wide, mode, tuple(x[i].astype(np.float64) for x in options["state"]))
            wrong = np.linalg.norm(fit.value[i] - path.value, axis=-1)
            assert (wrong <= fit.stats.value_bound[i]).all(), name


STEPS = [
    *(olsq.ConjugateGradient(k, 0.0, chunk=16) for k in (0, 1, 2, 4)),
    olsq.ConjugateGradient(3, 0.0, chunk=16, start="query"),
    olsq.ConjugateGradient(40, 1e-3, chunk=16),
    olsq.ConjugateGradient(2, 0.0, chunk=16, preconditioner="chunk"),
    *(olsq.Chebyshev(k, chunk=16) for k in (0, 1, 5)),
    olsq.Chebyshev(6, chunk=16, eigenvalue_ratio=30.0),
    *(olsq.Neumann(k, chunk=16) for k in (1, 2, 6)),
    *(olsq.ChunkExact(chunk=16, corrections=k) for k in (0, 1, 2)),
    olsq.ChunkExact(chunk=16, tol=1e-3),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ChunkExact.corrections")
@pytest.mark.parametrize("solver", STEPS, ids=repr)
def test_the_same_steps_give_the_same_iterates_on_both_sides(solver):
    names = ("walk .99", "zipf .999", "half .9", "resets")
    # In JAX the references of a harsh chunk depend on the chunks beside it.
    for name in names[: 2 if getattr(solver, "preconditioner", None) else 4]:
        s = {**streams()[0], **streams()[1]}[name]
        arrays, options = given(s, "fixed")
        got = olsq.online_lstsq(*arrays, **options, solver=solver)
        want = in_jax.online_lstsq(*arrays, **options, solver=solver)
        if solver == olsq.ChunkExact(chunk=16, tol=1e-3):  # each stops where it is told
            assert error(got.value, want.value) < 5e-3, name
            continue
        assert error(got.value, want.value) < 1e-11, name
        if getattr(solver, "tol", 1) != 0:  # else a residual of 0 and one of 1e-17 differ by a step
            assert (got.stats.steps == np.asarray(want.stats.steps)).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_k_steps_are_those_of_the_plain_loops(k):
    s = streams()[0]["walk .99"]
    path = exact(s, "fixed")
    q, ridge = s["queries"], s["ridge"]
    solvers = {
        "cg": olsq.ConjugateGradient(k, 0.0),
        "cg from the query": olsq.ConjugateGradient(k, 0.0, start="query"),
        "chebyshev": olsq.Chebyshev(k),
        "neumann": olsq.Neumann(k + 1),
    }
    for name, solver in solvers.items():
        arrays, options = given(s, "fixed")
        for side in (olsq, in_jax):
            value = np.asarray(side.online_lstsq(*arrays, **options, solver=solver).value)
            for t in range(T):
                system, trace = path.systems[t], np.trace(path.grams[t + 1])
                if name == "chebyshev":
                    low, high = ridge.min(), ridge.max() + trace
                    x = iterations.chebyshev(system, q[t], steps=k, low=low, high=high)
                elif name == "neumann":
                    scale = ridge.max() + trace
                    x = iterations.neumann(system, q[t], terms=k + 1, scale=scale)
                else:
                    begin = "query" if "query" in name else "jacobi"
                    x = iterations.conjugate_gradient(system, q[t], max_steps=k, start=begin)[0]
                assert error(value[t], path.crosses[t + 1] @ x) < 1e-9, (name, t)


def test_every_token_stops_at_its_own_tolerance():
    s = streams()[0]["zipf .999"]
    path = exact(s, "fixed")
    arrays, options = given(s, "fixed")
    solver = olsq.ConjugateGradient(50, 1e-3)
    steps = olsq.online_lstsq(*arrays, **options, solver=solver).stats.steps
    want = [
        iterations.conjugate_gradient(m, q, max_steps=50, tol=1e-3)[1]
        for m, q in zip(path.systems, s["queries"], strict=True)
    ]
    assert steps.tolist() == want
    assert len(set(want)) > 2


@pytest.mark.full
def test_the_vjp_is_jax_s():
    import jax

    s = stack({**streams()[0], **streams()[1]})
    arrays, options = given(s, "fixed")
    cotangent = np.random.default_rng(5).normal(size=s["values"].shape)
    got = olsq.online_lstsq_vjp(*arrays, cotangent, **options)

    def loss(keys, values, queries, forget, weight, ridge):
        fit = in_jax.online_lstsq(keys, values, queries, forget=forget, weight=weight, ridge=ridge)
        return (fit.value * cotangent).sum()

    inputs = *arrays, options["forget"], options["weight"], options["ridge"]
    want = jax.jit(jax.grad(loss, argnums=range(6)))(*map(jnp.asarray, inputs))
    for name, slope, expected in zip(got._fields, got, want, strict=False):
        slope = slope.sum(-2) if name == "ridge" else slope
        assert error(slope, expected) < 1e-9, name


def test_what_is_not_finite_has_no_gradient_and_hides_none():
    s = {n: x.copy() for n, x in streams()[0]["walk .99"].items()}
    arrays, options = given(s, "fixed")
    cotangent = np.ones((T, M))
    cotangent[20:] = 0
    clean = olsq.online_lstsq_vjp(*arrays, cotangent, **options)
    s["keys"][25], s["queries"][5] = np.nan, np.inf
    cotangent[5] = 0
    want = olsq.online_lstsq_vjp(*given(streams()[0]["walk .99"], "fixed")[0], cotangent, **options)
    got = olsq.online_lstsq_vjp(*arrays, cotangent, **options)
    for name, a, b in zip(got._fields, got, want, strict=True):
        assert error(a, b, 1e-3) < 1e-12, name
    assert not error(got.keys, clean.keys) < 1e-6  # the test can tell


CUT = [None, *STEPS[1::4], olsq.Dense(), olsq.ConjugateGradient(9)]


@pytest.mark.parametrize("solver", CUT, ids=repr)
@pytest.mark.filterwarnings("ignore:ChunkExact.corrections")
def test_streams_may_be_cut_and_lose_samples(solver):
    s = {n: x.copy() for n, x in streams()[1]["resets"].items()}
    s["keys"][12] = np.nan  # lost until the gate of 0 at 20
    arrays, options = given(s, "fixed")
    whole = olsq.online_lstsq(*arrays, **options, solver=solver)
    assert np.isnan(whole.value[12:20]).all()
    assert np.isfinite(whole.value[:12]).all()
    assert np.isfinite(whole.value[20:]).all()
    assert np.isfinite(whole.stats.bound[20:]).all()  # the lost sample is forgotten by bounds too
    first = {n: x if n == "ridge" else x[:16] for n, x in s.items()}
    later = {n: x if n == "ridge" else x[16:] for n, x in s.items()}
    arrays, options = given(first, "fixed")
    half = olsq.online_lstsq(*arrays, **options, solver=solver)
    arrays, options = given(later, "fixed", half.state)
    rest = olsq.online_lstsq(*arrays, **options, solver=solver)
    assert np.isnan(half.state.gram).all()
    chunked = solver is not None and getattr(solver, "chunk", 1) != 16
    if not chunked or solver == olsq.Dense():
        assert error(rest.value[4:], whole.value[20:]) < 1e-8


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("carried", [True, False], ids=["carried factor", "moments"])
def test_prefill_then_decode_is_prefill_of_everything(dtype, carried):
    half = T // 2
    for name, s in {**streams()[0], **streams()[1]}.items():
        a = {n: np.asarray(x, dtype) for n, x in s.items()}
        path = exact({n: x.astype(np.float64) for n, x in a.items()}, "fixed")
        first = {n: x if n == "ridge" else x[:half] for n, x in a.items()}
        arrays, options = given(first, "fixed")
        state = olsq.online_lstsq(*arrays, **options).state
        if carried:
            state = start_decoding(state, ridge=a["ridge"])
        out = []
        for t in range(half, T):
            before = [x.copy() for x in (state.moments if carried else state)]
            new = olsq.update(
                state, a["keys"][t], a["values"][t], forget=a["forget"][t], weight=a["weight"][t]
            )
            after = state.moments if carried else state
            assert all((x == y).all() for x, y in zip(before, after, strict=True))  # pure
            state = new
            out.append(olsq.query(state, a["queries"][t], ridge=None if carried else a["ridge"]))
        assert out[0].dtype == dtype
        kappa = np.linalg.cond(path.systems).max()
        eps = 2 * np.finfo(dtype).eps
        goal = max(1e-11 if dtype == np.float64 else 1e-5, 15 * kappa * eps)
        assert error(np.array(out), path.value[half:]) < goal, name


def test_batches_resets_and_absent_samples():
    rng = np.random.default_rng(1)
    moments = olsq.Moments(np.full((2, 3, D, D), np.nan), np.full((2, 3, M, D), np.nan))
    k, v, q = rng.normal(size=(2, 3, D)), rng.normal(size=(2, 3, M)), rng.normal(size=(2, 3, D))
    state = olsq.update(moments, k, v, forget=0.0)
    for s in (state, start_decoding(state, ridge=0.5)):
        s = olsq.update(s, np.full_like(k, np.inf), v, weight=0.0)
        value = olsq.query(s, q, **({} if isinstance(s, DecodeState) else {"ridge": 0.5}))
        for i in np.ndindex(2, 3):
            own = np.outer(k[i], k[i]) + 0.5 * np.eye(D)
            assert error(value[i], np.outer(v[i], k[i]) @ np.linalg.solve(own, q[i])) < 1e-12
    halves = merge_moments(state, state, forget=0.5)
    assert error(halves.gram, 1.5 * state.gram) < 1e-15


def test_decoding_refuses_what_jax_refuses():
    state = olsq.Moments(np.eye(2), np.ones((1, 2)))
    with pytest.raises(ValueError, match="forget must lie in"):
        olsq.update(state, np.ones(2), np.ones(1), forget=1.5)
    with pytest.raises(ValueError, match="weight must be >= 0"):
        olsq.update(state, np.ones(2), np.ones(1), weight=-1.0)
    with pytest.raises(ValueError, match="key and value must end"):
        olsq.update(state, np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match="query must end"):
        olsq.query(state, np.ones(3))
    with pytest.raises(ValueError, match="leave ridge out: the state is a DecodeState"):
        olsq.query(start_decoding(state, ridge=1.0), np.ones(2), ridge=1.0)
    with pytest.raises(TypeError, match="key must be real"):
        olsq.update(state, np.ones(2) * 1j, np.ones(1))


@pytest.mark.full
def test_nothing_here_imports_jax():
    program = """
import sys, numpy as np, olsq
keys = np.random.default_rng(0).standard_normal((30, 3))
for solver in (None, olsq.ConjugateGradient(), olsq.Chebyshev(5), olsq.Neumann(3), olsq.Dense(),
               olsq.ChunkExact(corrections=1), olsq.ConjugateGradient(preconditioner="chunk")):
    olsq.online_lstsq(keys, keys, keys, ridge=1.0, solver=solver)
    olsq.online_lstsq_vjp(keys, keys, keys, keys, ridge=1.0, solver=solver)
fit = olsq.online_lstsq(keys, keys, keys, ridge=1.0, ridge_mode="discounted",
                        solver=olsq.Recursive(), adjoint="unrolled")
state = olsq.sequence.start_decoding(fit.state)
olsq.query(olsq.update(state, keys[0], keys[0]), keys[0])
print("jax" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_solver_without_a_numpy_form_says_so():
    class Mine(olsq.sequence.Solver):
        chunk = 8

    keys = unit(np.ones((4, 2)))
    with pytest.raises(NotImplementedError, match="Mine has no NumPy form"):
        olsq.online_lstsq(keys, keys, keys, ridge=1.0, solver=Mine())
