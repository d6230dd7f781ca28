"""Shapes, errors, broadcasting, adjoints, second order and the papers' behaviours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import D, M, T, error, exact, streams, unit

import olsq
from olsq.reference import sequence as oracle
from olsq.sequence.jax import online_lstsq  # whatever the arrays are
from olsq.sequence.jax.platform import target, tuned_for
from tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(3)
K, Q = unit(RNG.normal(size=(2, 2, 3, 20, D)))
V = RNG.normal(size=(2, 3, 20, M))


@pytest.mark.slow
@pytest.mark.parametrize(
    "ridge_shape", [(), (D,), (3, 1), (2, 3, D), (2, 3, 1, D), (1, 1, 20, D), (2, 3, 20, 1)]
)
def test_ridge_may_be_a_number_per_feature_per_head_or_per_token(ridge_shape):
    ridge = RNG.uniform(0.2, 1, ridge_shape)
    gates = RNG.uniform(0.9, 1, (3, 1))
    sol = online_lstsq(K, V, Q, forget=gates, ridge=ridge, solver=olsq.ChunkExact(chunk=8))
    full = ridge if np.ndim(ridge) == 4 else np.expand_dims(np.broadcast_to(ridge, (2, 3, D)), -2)
    full = np.broadcast_to(full, (2, 3, 20, D))
    for i in np.ndindex(2, 3):
        path = oracle.solve(K[i], V[i], Q[i], forget=gates[i[1]], ridge=full[i])
        assert error(sol.value[i], path.value) < 1e-11


@pytest.mark.full
@pytest.mark.parametrize("mode", ["fixed", "discounted"])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_and_empty_streams(length, mode):
    k, v, q = K[..., :length, :], V[..., :length, :], Q[..., :length, :]
    sol = online_lstsq(k, v, q, forget=0.9, ridge=0.5, ridge_mode=mode)
    assert sol.value.shape == (2, 3, length, M)
    assert sol.stats.steps.shape == (2, 3, length)
    for i in np.ndindex(2, 3):
        path = exact(
            {
                "keys": k[i],
                "values": v[i],
                "queries": q[i],
                "forget": 0.9,
                "weight": 1.0,
                "ridge": 0.5,
            },
            mode,
        )
        assert error(sol.state.gram[i], path.grams[-1]) < 1e-14
        if length:
            assert error(sol.value[i], path.value) < 1e-12
    none = online_lstsq(K[:0], V[:0], Q[:0], ridge=0.5, ridge_mode=mode)
    assert none.value.shape == (0, 3, 20, M)
    assert none.state.gram.shape == (0, 3, D, D)


@pytest.mark.full
def test_leading_axes_broadcast_and_log_gates_are_gates():
    gates = RNG.uniform(0.8, 1, (3, 20))
    one = online_lstsq(K[0, 0], V, Q, forget=gates, ridge=0.5)
    two = online_lstsq(np.broadcast_to(K[0, 0], K.shape), V, Q, log_forget=np.log(gates), ridge=0.5)
    np.testing.assert_allclose(one.value, two.value, rtol=1e-11, atol=1e-12)
    slow = online_lstsq(K, V, Q, log_forget=np.full((20,), -np.inf), ridge=0.5)
    reset = online_lstsq(K, V, Q, forget=0.0, ridge=0.5)
    np.testing.assert_allclose(slow.value, reset.value, rtol=1e-12)


@pytest.mark.full
def test_inputs_under_scan_and_jit():
    def layer(state, kvq):
        sol = online_lstsq(*kvq, forget=0.95, ridge=0.5, state=state)
        return sol.state, sol.value

    pieces = tuple(jnp.asarray(x[0].reshape(3, 4, 5, -1).swapaxes(0, 1)) for x in (K, V, Q))
    zero = olsq.Moments(jnp.zeros((3, D, D)), jnp.zeros((3, M, D)))
    state, value = jax.jit(lambda s, x: jax.lax.scan(layer, s, x))(zero, pieces)
    whole = online_lstsq(K[0], V[0], Q[0], forget=0.95, ridge=0.5)
    np.testing.assert_allclose(
        value.swapaxes(0, 1).reshape(3, 20, M), whole.value, rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(state.cross, whole.state.cross, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"forget": 1.1}, "forget must lie in"),
        ({"forget": 0.9, "log_forget": 0.0}, "not both"),
        ({"log_forget": 0.1}, "log_forget must be <= 0"),
        ({"weight": -1.0}, "weight must be >= 0"),
        ({"weight": np.ones(7)}, "weight has shape"),
        ({"ridge": None}, "ridge is needed"),
        ({"ridge": -1.0}, "ridge must be finite"),
        ({"ridge": np.ones((D + 1,))}, "ridge has shape"),
        ({"ridge_mode": "fading"}, "ridge_mode must be one of"),
        ({"adjoint": "magic"}, "adjoint must be one of"),
        ({"ridge_mode": "discounted", "state": (np.eye(D), np.ones((M, D)))}, "must be left out"),
        ({"ridge_mode": "discounted", "ridge": np.ones((1, 1, 20, 1))}, "one ridge"),
        ({"solver": olsq.Recursive(), "forget": 0.9}, "use ChunkExact"),
        ({"solver": olsq.Recursive(), "ridge": np.ones((2, 3, 20, D))}, "one ridge for all tokens"),
        ({"solver": olsq.Chebyshev(), "forget": 0.9, "ridge_mode": "discounted"}, "does not solve"),
        ({"solver": olsq.Chebyshev(), "ridge_mode": "discounted"}, "does not solve"),
        ({"state": (np.eye(D + 1), np.ones((M, D)))}, "state.gram has shape"),
    ],
)
def test_errors_name_the_argument_and_the_way_out(change, says):
    with pytest.raises(ValueError, match=says):
        online_lstsq(K, V, Q, **{"ridge": 0.5, **change})


def test_shape_errors():
    for args, says in [
        ((K, V[..., :3, :], Q), "same length"),
        ((K, V, Q[..., :2]), "width"),
        ((K[0, 0, 0], V, Q), "shape"),
        ((K[:, :2], V, Q), "do not broadcast"),
    ]:
        with pytest.raises(ValueError, match=says):
            online_lstsq(*args, ridge=0.5)
    with pytest.raises(TypeError, match="real"):
        online_lstsq(K * 1j, V, Q, ridge=0.5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: olsq.ChunkExact(chunk=0), "chunk"),
        (lambda: olsq.ChunkExact(corrections=-1), "corrections"),
        (lambda: olsq.ChunkExact(tol=np.inf), r"tol must be in \[0, 1\)"),
        (lambda: olsq.ChunkExact(max_steps=1.5), "max_steps must be an integer >= 1, got 1.5"),
        (lambda: olsq.Chebyshev(2.5), "steps must be an integer >= 0, got 2.5"),
        (lambda: olsq.Dense(chunk="many"), "chunk must be an integer >= 1, got 'many'"),
        (lambda: olsq.ConjugateGradient(tol=-1), "tol"),
        (lambda: olsq.ConjugateGradient(max_steps=-1), "max_steps"),
        (lambda: olsq.ConjugateGradient(preconditioner="diagonal"), "preconditioner"),
        (lambda: olsq.ConjugateGradient(start="zero"), "start"),
        (lambda: olsq.Chebyshev(-1), "steps"),
        (lambda: olsq.Neumann(0), "terms"),
        (lambda: olsq.Dense(chunk=0), "chunk"),
        (lambda: olsq.Recursive(chunk=0), "chunk"),
    ],
)
def test_solvers_refuse_nonsense(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def stream(name, group=0):
    s = streams()[group][name]
    return s, tuple(
        jnp.asarray(s[n]) for n in ("keys", "values", "queries", "forget", "weight", "ridge")
    )


def dense(k, v, q, g, w, r):
    """Plain JAX definition, for derivatives of any order."""

    def step(state, t):
        k, v, q, g, w = t
        gram, cross = g * state[0] + w * jnp.outer(k, k), g * state[1] + w * jnp.outer(v, k)
        return (gram, cross), cross @ jnp.linalg.solve(gram + jnp.diag(r), q)

    zero = jnp.zeros((D, D)), jnp.zeros((M, D))
    return jax.lax.scan(step, zero, (k, v, q, g, w))[1]


@pytest.mark.slow
@pytest.mark.parametrize(("d", "chunk"), [(3, 32), (64, 32), (65, 64)])
def test_solvers_that_do_not_say_have_chunks_that_suit_the_width(d, chunk):
    k, v, q = np.random.default_rng(0).standard_normal((3, 130, d)).astype(np.float32)

    def program(solver):
        def value(k):
            return online_lstsq(k, v, q, forget=0.99, ridge=1.0, solver=solver).value

        with tuned_for(target()):  # else there are two, the other one for accelerators
            return jax.jit(value).lower(k).as_text()

    assert program(olsq.ConjugateGradient()) == program(olsq.ConjugateGradient(chunk=chunk))
    assert program(None) == program(olsq.ChunkExact(chunk=chunk)) != program(olsq.ChunkExact(16))


@pytest.mark.parametrize(
    "solver", nightly([None, olsq.ConjugateGradient(40, 1e-14)]), ids=["default", "cg"]
)
def test_second_order_matches_plain_differentiation(solver):
    _, args = stream("resets", 1)
    rng = np.random.default_rng(5)
    direction = tuple(jnp.asarray(rng.normal(size=a.shape)) for a in args)
    up = jnp.asarray(rng.normal(size=(T, M)))

    def ours(k, v, q, g, w, r):
        return online_lstsq(k, v, q, forget=g, weight=w, ridge=r, solver=solver).value

    def curvature(f):
        def loss(*a):
            return (jnp.sin(f(*a)) * up).sum()

        return jax.jit(lambda a, d: jax.jvp(jax.grad(loss, argnums=range(6)), a, d)[1])

    for a, b in zip(
        curvature(ours)(args, direction), curvature(dense)(args, direction), strict=True
    ):
        assert error(a, b) < 1e-8


def few_steps(k, q):
    solver = olsq.ConjugateGradient(2, 0.0, chunk=8)
    options = {"forget": 0.9, "ridge": 1.0, "solver": solver, "adjoint": "unrolled"}
    return online_lstsq(k, k, q, **options).value


@pytest.mark.full
def test_steps_that_leave_nothing_to_solve_have_finite_derivatives():
    slope = jax.jit(jax.grad(lambda k, q: few_steps(k, q).sum(), (0, 1)))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        k, q = rng.standard_normal((2, 20, 4), np.float32)
        k[::3] = 0  # the first iterate is exact at once, and its residual squared underflows
        assert all(np.isfinite(x).all() for x in slope(k, q)), seed


@pytest.mark.slow
def test_second_derivatives_of_the_steps_are_those_of_differences():
    rng = np.random.default_rng(0)
    k, q, up, way = rng.standard_normal((4, 9, 3))
    slope = jax.jit(jax.grad(lambda k: (few_steps(k, q) * up).sum()))
    want = (slope(k + 1e-5 * way) - slope(k - 1e-5 * way)) / 2e-5
    forward = jax.jvp(slope, (jnp.asarray(k),), (jnp.asarray(way),))[1]
    reverse = jax.grad(lambda k: (slope(k) * way).sum())(jnp.asarray(k))
    assert error(forward, want) < 1e-6
    assert error(reverse, want) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [
        olsq.ChunkExact(chunk=16),
        olsq.Dense(16),
        olsq.ConjugateGradient(30, 1e-14, 16),
        olsq.Chebyshev(250, 16),
        olsq.Neumann(4000, 16),
    ],
    ids=lambda s: type(s).__name__,
)
def test_unrolled_gradients_of_converged_solvers_are_the_implicit_ones(solver):
    _, args = stream("weights 0")

    def grads(solver, adjoint):
        def loss(k, v, q, g, w, r):
            sol = online_lstsq(k, v, q, forget=g, weight=w, ridge=r, solver=solver, adjoint=adjoint)
            return jnp.sin(sol.value).sum()

        return jax.jit(jax.grad(loss, argnums=range(6)))(*args)

    want = grads(olsq.Dense(16), "implicit")
    for a, b in zip(grads(solver, "unrolled"), want, strict=True):
        assert error(a, b) < 1e-7


@pytest.mark.slow
def test_unrolled_recursive_is_the_thesis_backward():
    _, args = stream("walk .99")

    def grads(solver, adjoint):
        def loss(k, v, q, g, w, r):
            sol = online_lstsq(
                k,
                v,
                q,
                forget=g,
                weight=w,
                ridge=r,
                solver=solver,
                adjoint=adjoint,
                ridge_mode="discounted",
            )
            return jnp.sin(sol.value).sum()

        return jax.jit(jax.grad(loss, argnums=range(6)))(*args)

    want = grads(olsq.Recursive(), "unrolled")
    for solver in (olsq.Recursive(reverse=True), olsq.ChunkExact()):
        for a, b in zip(grads(solver, "implicit"), want, strict=True):
            assert error(a, b) < 1e-8


@pytest.mark.full
def test_truncated_solvers_differ_between_adjoints():
    _, args = stream("plain")

    def grad(adjoint):
        return jax.grad(
            lambda q: online_lstsq(
                args[0], args[1], q, ridge=0.3, solver=olsq.Neumann(3), adjoint=adjoint
            ).value.sum()
        )(args[2])

    step = 1e-6 * np.ones((T, D))
    value = [
        online_lstsq(
            args[0], args[1], args[2] + sign * step, ridge=0.3, solver=olsq.Neumann(3)
        ).value.sum()
        for sign in (1, -1)
    ]
    slope = (value[0] - value[1]) / 2e-6
    assert abs(grad("unrolled").sum() - slope) < 1e-6 * abs(slope)


@pytest.mark.slow
def test_no_memory_of_one_matrix_per_token():
    """Forward and backward: nothing (T, d, d), only one pair of moments per chunk."""
    t, d = 4096, 16
    shape = jax.ShapeDtypeStruct((t, d), jnp.float32)
    gates = jax.ShapeDtypeStruct((t,), jnp.float32)
    for solver, mode in [
        (olsq.ChunkExact(), "fixed"),
        (olsq.Recursive(reverse=True), "discounted"),
        (olsq.Recursive(), "discounted"),
        (olsq.Dense(), "fixed"),
    ]:

        def loss(k, v, q, g, solver=solver, mode=mode):
            return online_lstsq(
                k, v, q, forget=g, ridge=0.5, solver=solver, ridge_mode=mode
            ).value.sum()

        text = (
            jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
            .lower(shape, shape, shape, gates)
            .as_text()
        )
        assert f"{t}x{d}x{d}x" not in text
        assert f"{t}x1x{d}x{d}x" not in text
        if solver != olsq.Dense():
            assert f"64x64x{d}x{d}x" not in text


def run(solver, name="plain", group=0, **changes):
    s = {**streams()[group][name], **changes}
    k, v, q, r = s.pop("keys"), s.pop("values"), s.pop("queries"), s.pop("ridge")
    return online_lstsq(k, v, q, **s, ridge=r, solver=solver)


def test_zero_steps_are_gated_linear_attention():
    s = streams()[1]["half .9"]
    path = exact(s, "fixed")
    got = run(olsq.ConjugateGradient(max_steps=0, start="query"), "half .9", 1).value
    want = np.einsum("tmd,td->tm", path.crosses[1:], s["queries"])
    assert error(got, want) < 1e-13
    jacobi = run(olsq.ConjugateGradient(max_steps=0), "half .9", 1).value
    diagonal = np.diagonal(path.systems, axis1=1, axis2=2)
    assert error(jacobi, np.einsum("tmd,td->tm", path.crosses[1:], s["queries"] / diagonal)) < 1e-13


def test_conjugate_gradient_is_exact_after_d_steps():
    s = streams()[0]["walk .99"]
    want = exact(s, "fixed").value
    assert error(run(olsq.ConjugateGradient(D, 0.0), "walk .99").value, want) < 1e-11
    assert error(run(olsq.ConjugateGradient(D - 2, 0.0), "walk .99").value, want) > 1e-5


@pytest.mark.full
def test_easy_tokens_stop_early_and_the_preconditioner_needs_two_or_three_steps():
    rng = np.random.default_rng(0)
    t, d = 600, 32
    k, q = unit(rng.normal(size=(2, t, d)))
    v = rng.normal(size=(t, 2))

    def steps(gate, ridge=0.25, keys=k, **options):
        sol = online_lstsq(
            keys, v, q, forget=gate, ridge=ridge, solver=olsq.ConjugateGradient(60, **options)
        )
        return np.asarray(sol.stats.steps)[200:].mean()

    easy, hard = steps(0.95), steps(0.9999, keys=k * np.linspace(0.05, 1, d))
    assert 4 < easy < 12  # the papers' "about 9 steps" at 1e-4
    assert hard > 1.5 * easy  # long memories have a larger condition number
    assert steps(0.999, preconditioner="chunk") < 3.5
    assert steps(0.999) > 6


def test_neumann_converges_at_its_rate():
    s = streams()[0]["plain"]
    s["ridge"] = np.full(D, 5.0)
    path = exact(s, "fixed")
    errors = [
        np.linalg.norm(run(olsq.Neumann(n), ridge=s["ridge"]).value[-1] - path.value[-1])
        for n in (40, 60)
    ]
    system = path.systems[-1]
    c = np.trace(path.grams[-1]) + 5.0
    rate = 1 - np.linalg.eigvalsh(system)[0] / c
    assert abs((errors[1] / errors[0]) ** (1 / 20) - rate) < 0.05 * rate
