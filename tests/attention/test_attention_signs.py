"""Gates in [-1, 1]: parity, systems that are not positive definite, and what is refused.

Values and derivatives of the signed rules are rows of the table, see attention_cases.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import ConjugateGradient, Dense, Moments, attention
from olsq.attention import Memory
from olsq.reference import attention_solved as solved
from olsq.reference import sequence
from tests.versions import InOneProgram

pytestmark = pytest.mark.usefixtures("one_target")

B, T, H, K, V = 2, 70, 2, 3, 2

compiled = InOneProgram(attention)
FULL = ConjugateGradient(max_steps=4 * K, tol=1e-13)
FROM_QUERY = ConjugateGradient(max_steps=4 * K, tol=1e-13, start="query")
RULES = {"gla": {}, "mamba2": {}, "gated_delta": {}, "mesa": {"ridge": 5.0}}

rules = pytest.mark.parametrize("name", RULES)


@pytest.fixture
def stream():
    rng = np.random.default_rng(11)
    q, k = rng.normal(size=(2, B, T, H, K))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.normal(size=(B, T, H, V))
    forget = rng.uniform(0.8, 1, (B, T, H)) * rng.choice([-1, 1], (B, T, H))
    weight = rng.uniform(0.2, 1, (B, T, H))
    return {n: jnp.asarray(x) for n, x in zip("qkvgw", (q, k, v, forget, weight), strict=True)}


def qkv(s):
    return s["q"], s["k"], s["v"]


def close(a, b, tolerance):
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


def bits(length):
    found = np.random.default_rng(0).integers(0, 2, length)
    return found, np.cumsum(found) % 2


@pytest.mark.full
def test_one_head_of_gla_computes_parity_exactly():
    """The paper's construction: written once, turned round by every 1."""
    ones, parity = bits(1000)
    x = np.ones((1, 1000, 1, 1), np.float32)
    gates = (1 - 2 * ones).astype(np.float32)[None, :, None]
    write = np.zeros((1, 1000, 1), np.float32)
    write[:, 0] = 1
    values = x * gates[..., None]  # only the first is written
    for run in (attention.gla, jax.jit(attention.gla, static_argnames="signed")):
        o, state = run(x, x, values, forget=gates, weight=write, signed=True)
        np.testing.assert_array_equal(o[0, :, 0, 0], 1 - 2 * parity)
        assert state.matrix.item() == 1 - 2 * parity[-1]


@pytest.mark.full
@rules
def test_every_signed_rule_turns_its_state_round(name):
    ones, parity = bits(200)
    x, one = np.ones((1, 200, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    gates = (1 - 2 * ones).astype(np.float32)[None, :, None]
    rule, step = getattr(compiled, name), getattr(compiled, f"{name}_step")
    state = Moments(one, one) if name == "mesa" else Memory(one)
    o, _ = rule(x, 0 * x, x, forget=gates, signed=True, state=state, **RULES[name])
    sign = 1 - 2 * parity
    np.testing.assert_array_equal(np.sign(o[0, :, 0, 0]), sign)
    if name != "mesa":
        np.testing.assert_array_equal(o[0, :, 0, 0], sign)
    for t in range(6):
        options = {"forget": gates[:, t], "signed": True, "state": state}
        got, state = step(x[:, t], 0 * x[:, t], x[:, t], **options, **RULES[name])
        rtol = 1e-6 if name == "mesa" else 0  # which divides; the others' are 1 and -1
        np.testing.assert_allclose(got[0, 0], o[0, t, 0], rtol=rtol)


@pytest.mark.slow
@rules
def test_gates_that_are_not_negative_are_the_gates_of_the_plain_rule(stream, name):
    gates, rule = jnp.abs(stream["g"]).at[0, 30].set(0), getattr(compiled, name)
    want, last = rule(*qkv(stream), forget=gates, **RULES[name])
    got, state = rule(*qkv(stream), forget=gates, signed=True, **RULES[name])
    close(got, want, 1e-12)
    close(state[0], last[0], 1e-13)
    want, _ = rule(*qkv(stream), **RULES[name])
    close(rule(*qkv(stream), signed=True, **RULES[name])[0], want, 1e-12)


@pytest.mark.full
def test_mesa_with_signed_gates_goes_over_into_gla(stream):
    gates = {"forget": stream["g"], "weight": stream["w"], "signed": True}
    want, memory = compiled.gla(*qkv(stream), **gates)
    none = ConjugateGradient(max_steps=0, start="query")
    got, state = compiled.mesa(*qkv(stream), **gates, ridge=0.01, solver=none)
    close(got, want, 1e-13)
    close(state.cross, memory.matrix, 1e-13)
    got, _ = compiled.mesa(*qkv(stream), **gates, ridge=1e6)
    close(1e6 * got, want, 10 * T / 1e6)


def unsound(s, ridge):
    """Tokens (B, T, H) whose systems are not positive definite."""
    found = np.zeros((B, T, H), bool)
    for b, h in np.ndindex(B, H):
        k, v, q, g, w = (np.asarray(s[n])[b, :, h] for n in "kvqgw")
        path = sequence.solve(k, v, q, forget=g, weight=w, ridge=ridge)
        found[b, :, h] = np.linalg.eigvalsh(path.systems)[:, 0] <= 0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, FULL, FROM_QUERY], ids=["dense", "cg", "cg from q"])
def test_a_system_that_is_not_definite_is_nan_there_and_nowhere_else(stream, solver):
    ridge, lost = 0.5, unsound(stream, 0.5)
    assert 0.1 < lost.mean() < 0.9
    gates = {"forget": stream["g"], "weight": stream["w"]}
    options = {"ridge": ridge, "signed": True, "solver": solver}
    o, state = compiled.mesa(*qkv(stream), **gates, **options)
    np.testing.assert_array_equal(np.isnan(o), np.broadcast_to(lost[..., None], o.shape))
    half = {n: x[:, :33] for n, x in stream.items()}
    rest = {n: x[:, 33:] for n, x in stream.items()}
    _, middle = compiled.mesa(*qkv(half), forget=half["g"], weight=half["w"], **options)
    later, _ = compiled.mesa(
        *qkv(rest), forget=rest["g"], weight=rest["w"], **options, state=middle
    )
    for b, h in np.ndindex(B, H):
        one = {n: x[b, :, h] for n, x in gates.items()}
        want, end = solved.mesa_signed(*(x[b, :, h] for x in qkv(stream)), **one, ridge=ridge)
        seen = ~lost[b, :, h]
        np.testing.assert_allclose(o[b, seen, h], want[seen], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(later[b, seen[33:], h], want[33:][seen[33:]], 1e-8, 1e-8)
        for mine, theirs in zip(state, end, strict=True):
            np.testing.assert_allclose(mine[b, h], theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "adjoint"),
    [(None, "implicit"), (None, "unrolled"), (FULL, "implicit"), (FULL, "unrolled")],
    ids=str,
)
def test_gradients_do_not_notice_the_tokens_that_are_nan(stream, solver, adjoint):
    ridge = 0.5
    up = np.random.default_rng(1).normal(size=(B, T, H, V))

    def loss(q, k, v, g, w):
        options = {"ridge": ridge, "signed": True, "solver": solver, "adjoint": adjoint}
        o, _ = attention.mesa(q, k, v, forget=g, weight=w, **options)
        return (up * jnp.where(jnp.isnan(o), 0, o)).sum()

    got = jax.jit(jax.grad(loss, (0, 1, 2, 3, 4)))(*stream.values())
    up[unsound(stream, ridge)] = 0
    names = ("queries", "keys", "values", "forget", "weight")
    for b, h in np.ndindex(B, H):
        q, k, v, g, w = (np.asarray(x)[b, :, h] for x in stream.values())
        want = sequence.gradients(k, v, q, up[b, :, h], forget=g, weight=w, ridge=ridge)
        for x, name in zip(got, names, strict=True):
            assert np.isfinite(x).all()
            close(x[b, :, h], want[name], 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("start", ["jacobi", "query"])
@pytest.mark.parametrize("adjoint", ["implicit", "unrolled"])
def test_a_negative_curvature_in_the_last_step_is_seen(steps, start, adjoint):
    """The gram of the second token is -1 along the first key; after a gate of 0 all is well."""
    q = np.ones((1, 4, 1, 2))
    k = np.zeros((1, 4, 1, 2))
    k[0, 0, 0, 0] = 1
    forget = np.array([1.0, -1.0, 1.0, 0.0])[None, :, None]
    few = ConjugateGradient(max_steps=steps, tol=0, start=start)
    options = {"forget": forget, "ridge": 0.25, "signed": True, "solver": few, "adjoint": adjoint}
    o, state = compiled.mesa(q, k, k, **options)
    np.testing.assert_array_equal(np.isnan(o[0, :, 0, 0]), [False, True, True, False])
    assert all(np.isfinite(x).all() for x in state)


@pytest.mark.slow
def test_what_only_a_gradient_sees_is_nan_too():
    """A negative direction that the query is orthogonal to; a query of 0 is no exception."""
    k, q = np.zeros((2, 1, 2, 1, 2))
    k[0, 0, 0, 1] = q[..., 0] = 1
    forget = np.array([1.0, -1.0])[None, :, None]

    def outputs(q, solver):
        options = {"forget": forget, "ridge": 0.25, "signed": True, "solver": solver}
        return compiled.mesa(q, k, k, **options)[0][0, :, 0, 1]

    np.testing.assert_array_equal(outputs(q, FROM_QUERY), 0)
    slope = jax.jacrev(outputs)(jnp.asarray(q), FROM_QUERY)[:, 0, :, 0]
    np.testing.assert_allclose(slope[0, 0], [0, 1 / 1.25], rtol=1e-14)
    assert np.isnan(slope[1, 1]).all()
    ahead = jax.jacfwd(outputs)(jnp.asarray(q), FROM_QUERY)[:, 0, :, 0]
    assert np.isnan(ahead[1, 1, 1])
    np.testing.assert_array_equal(np.isnan(outputs(q, None)), [False, True])
    np.testing.assert_array_equal(np.isnan(outputs(0 * q, None)), [False, True])
    assert np.isfinite(jax.jacrev(outputs)(jnp.asarray(0 * q), None)).all()


@pytest.mark.full
@pytest.mark.parametrize("solver", [None, FULL], ids=["dense", "cg"])
def test_float32_and_tokens_one_at_a_time_agree(stream, solver):
    s = {n: jnp.asarray(x, jnp.float32) for n, x in stream.items()}
    options = {"ridge": 4.0, "signed": True, "solver": solver}
    o, _ = compiled.mesa(*qkv(s), forget=s["g"], weight=s["w"], **options)
    assert o.dtype == jnp.float32
    state = None
    for t in range(8):
        one = {"forget": s["g"][:, t], "weight": s["w"][:, t], "state": state}
        got, state = compiled.mesa_step(*(x[:, t] for x in qkv(s)), **one, **options)
        close(got, o[:, t], 2e-6)


@rules
@pytest.mark.parametrize("suffix", ["", "_step"])
def test_what_signed_refuses_and_says(stream, name, suffix):
    x = [a[:, 0] if suffix else a for a in qkv(stream)]
    g = stream["g"][:, 0] if suffix else stream["g"]
    rule, fixed = getattr(attention, name + suffix), RULES[name]
    with pytest.raises(ValueError, match=r"forget must lie in \[0, 1\].*signed=True"):
        rule(*x, forget=g, **fixed)
    with pytest.raises(ValueError, match=r"forget must lie in \[-1, 1\]"):
        rule(*x, forget=2 * g, signed=True, **fixed)
    with pytest.raises(ValueError, match="log_forget has no sign"):
        rule(*x, log_forget=jnp.log(jnp.abs(g)), signed=True, **fixed)
    with pytest.raises(ValueError, match="forget or log_forget"):
        rule(*x, forget=g, log_forget=g, signed=True, **fixed)


def test_a_rule_without_signed_gates_does_not_offer_them(stream):
    with pytest.raises(ValueError, match=r"forget must lie in \[0, 1\]") as refused:
        attention.mlstm(*qkv(stream), forget=stream["g"])
    assert "signed" not in str(refused.value)
    with pytest.raises(ValueError, match=r"forget must lie in \[0, 1\]") as refused:
        attention.mesa_discounted(*qkv(stream), forget=stream["g"], ridge=1.0)
    assert "signed" not in str(refused.value)


@pytest.mark.parametrize(
    "solver",
    [
        olsq.ChunkExact(),
        olsq.Chebyshev(),
        olsq.Neumann(),
        olsq.Recursive(),
        ConjugateGradient(preconditioner="chunk"),
    ],
    ids=lambda s: type(s).__name__,
)
def test_solvers_that_need_a_definite_gram_are_refused(stream, solver):
    with pytest.raises(ValueError, match=f"{type(solver).__name__}.*use Dense .* or Conj"):
        attention.mesa(*qkv(stream), forget=stream["g"], ridge=5.0, signed=True, solver=solver)
    attention.mesa(*qkv(stream), forget=stream["g"], ridge=5.0, signed=True, solver=Dense())


def test_a_carried_factor_is_refused(stream):
    one = [x[:, 0] for x in qkv(stream)]
    _, moments = compiled.mesa_step(*one, ridge=5.0)
    carried = olsq.sequence.start_decoding(moments, ridge=5.0)
    with pytest.raises(TypeError, match=r"state must be olsq\.Moments"):
        compiled.mesa_step(*one, forget=stream["g"][:, 0], ridge=5.0, signed=True, state=carried)
