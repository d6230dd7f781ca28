"""Identities between rules: one rule equals another, exactly or in a limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import quick
from scipy.linalg import expm

import olsq
from olsq import attention
from olsq.attention.recurrences import triangle
from olsq.attention.registry import RULES
from olsq.reference import attention_solved as solved
from tests.versions import InOneProgram

pytestmark = pytest.mark.usefixtures("one_target")

B, T, H, K, V = 2, 40, 2, 5, 3

compiled = InOneProgram(attention)


@pytest.fixture
def stream():
    rng = np.random.default_rng(7)
    q, k = rng.normal(size=(2, B, T, H, K))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.normal(size=(B, T, H, V))
    forget, weight = rng.uniform(0.8, 1, (B, T, H)), rng.uniform(0, 1, (B, T, H))
    return {n: jnp.asarray(x) for n, x in zip("qkvgw", (q, k, v, forget, weight), strict=True)}


def qkv(s):
    return s["q"], s["k"], s["v"]


def close(a, b, tolerance):
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.full
def test_mesa_with_zero_steps_is_gla(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    none = olsq.ConjugateGradient(max_steps=0, start="query")
    got, _ = compiled.mesa(*qkv(stream), **gates, ridge=0.5, solver=none)
    want, memory = compiled.gla(*qkv(stream), **gates)
    close(got, want, 1e-13)
    _, state = compiled.mesa(*qkv(stream), **gates, ridge=0.5)
    close(state.cross, memory.matrix, 1e-13)


@pytest.mark.full
@pytest.mark.parametrize("ridge", [1e6, 1e9])
def test_mesa_with_a_huge_ridge_approaches_gla_over_the_ridge(stream, ridge):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    got, _ = compiled.mesa(*qkv(stream), **gates, ridge=ridge)
    want, _ = compiled.gla(*qkv(stream), **gates)
    # the next term of the series is -H / ridge, and |H| is below the sum of the weights
    close(ridge * got, want, 10 * T / ridge)


def test_delta_is_one_gradient_step_a_token(stream):
    q, k, v = (np.asarray(x)[0, :, 0] for x in qkv(stream))
    beta = np.asarray(stream["w"])[0, :, 0]
    memory, out = np.zeros((V, K)), []
    for t in range(T):

        def loss(m, t=t):
            return 0.5 * ((v[t] - m @ k[t]) ** 2).sum()

        slope = np.zeros_like(memory)
        for at in np.ndindex(memory.shape):  # the loss is quadratic: central differences are exact
            step = np.zeros_like(memory)
            step[at] = 1e-2
            slope[at] = (loss(memory + step) - loss(memory - step)) / 2e-2
        memory = memory - beta[t] * slope
        out.append(memory @ q[t])
    got, _ = compiled.delta(*qkv(stream), weight=stream["w"])
    close(got[0, :, 0], np.array(out), 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_step_sizes_of_delta_rules_are_gradient_flow_and_projection(stream, size):
    """The recipes of the family page, for keys of any length: against expm, and Kaczmarz' own."""
    k, v, b = size * stream["k"], stream["v"], 0.5
    square = (k * k).sum(-1)
    step = -jnp.expm1(-b * square) / square
    gated = quick(attention.gated_delta)(k, k, v, forget=stream["g"], weight=step)[1].matrix
    plain = quick(attention.delta)(k, k, v, weight=step)[1].matrix
    nearest, _ = quick(attention.delta)(k, k, v, weight=1 / square)
    close(nearest, v, 1e-11)  # S k = v after the step
    gates_of_row = stream["g"][1, :, 0]
    for (i, h), state, gates in (((0, 1), plain, np.ones(T)), ((1, 0), gated, gates_of_row)):
        want = np.zeros((V, K))
        for key, value, gate in zip(k[i, :, h], v[i, :, h], gates, strict=True):
            # d/dt [S; 1] = [S; 1] M, whose exponential has the integral of exp(-t k k^T) in it
            flow = np.block([[-np.outer(key, key), np.zeros((K, V))],
                             [np.outer(value, key), np.zeros((V, V))]])  # fmt: skip
            moved = expm(b * flow)
            want = gate * want @ moved[:K, :K] + moved[K:, :K]
        close(state[i, h], want, 1e-9)


@pytest.mark.full
def test_mesa_discounted_is_online_newton(stream):
    """MesaNet eq. 24: a step along H^{-1} k where delta steps along k."""
    q, k, v = (np.asarray(x)[0, :, 0] for x in qkv(stream))
    gamma, beta = (np.asarray(stream[n])[0, :, 0] for n in "gw")
    hessian, phi, out = 0.7 * np.eye(K), np.zeros((V, K)), []
    for t in range(T):
        hessian = gamma[t] * hessian + beta[t] * np.outer(k[t], k[t])
        slope = -beta[t] * np.outer(v[t] - phi @ k[t], k[t])
        phi = phi - slope @ np.linalg.inv(hessian)
        out.append(phi @ q[t])
    gates = {"forget": stream["g"], "weight": stream["w"]}
    got, _ = compiled.mesa_discounted(*qkv(stream), **gates, ridge=0.7)
    close(got[0, :, 0], np.array(out), 1e-11)


@pytest.mark.full
def test_gla_without_weights_is_mamba2_and_retention_is_its_constant(stream):
    ones = jnp.ones_like(stream["w"])
    want, _ = compiled.mamba2(*qkv(stream), forget=stream["g"])
    close(compiled.gla(*qkv(stream), forget=stream["g"], weight=ones)[0], want, 0)
    fixed = jnp.asarray([0.9, 0.97])
    everywhere = jnp.broadcast_to(fixed, (B, T, H))
    want, _ = compiled.mamba2(*qkv(stream), forget=everywhere)
    close(compiled.retention(*qkv(stream), forget=fixed)[0], want, 1e-14)


def test_equal_vector_gates_are_a_scalar_gate(stream):
    wide = jnp.broadcast_to(stream["g"][..., None], (B, T, H, K))
    want, _ = compiled.gla(*qkv(stream), forget=stream["g"], weight=stream["w"])
    close(compiled.gla(*qkv(stream), forget=wide, weight=stream["w"])[0], want, 1e-13)


@pytest.mark.full
def test_hgrn2_is_gla_with_its_own_key(stream):
    gates = jnp.broadcast_to(stream["g"][..., None], (B, T, H, K))
    want, _ = compiled.gla(stream["q"], 1 - gates, stream["v"], forget=gates)
    close(compiled.hgrn2(stream["q"], stream["v"], forget=gates)[0], want, 1e-13)


@pytest.mark.slow
def test_mlstm_reads_gla_where_its_normaliser_is_small(stream):
    q = 1e-3 * stream["q"]
    want, _ = compiled.gla(q, stream["k"], stream["v"], forget=stream["g"], weight=stream["w"])
    rest = qkv(stream)[1:]
    got, _ = compiled.mlstm(q, *rest, forget=stream["g"], weight=stream["w"])
    close(got, want, 1e-13)
    logs = jnp.log(stream["w"])
    close(compiled.mlstm(q, *rest, forget=stream["g"], log_weight=logs)[0], want, 1e-12)


@pytest.mark.full
def test_gated_delta_with_vanishing_steps_is_gla(stream):
    tiny = 1e-9
    want, _ = compiled.gla(*qkv(stream), forget=stream["g"], weight=stream["w"])
    got, _ = compiled.gated_delta(*qkv(stream), forget=stream["g"], weight=tiny * stream["w"])
    close(got / tiny, want, 10 * T * tiny)


@pytest.mark.slow
def test_longhorn_on_one_hot_keys_is_delta_with_its_implicit_step(stream):
    hot = jnp.asarray(np.eye(K)[np.random.default_rng(0).integers(0, K, (B, T, H))])
    step = stream["w"] / (1 + stream["w"])
    want, _ = compiled.delta(stream["q"], hot, stream["v"], weight=step)
    close(compiled.longhorn(stream["q"], hot, stream["v"], weight=stream["w"])[0], want, 1e-12)


@pytest.mark.full
def test_mamba3_that_steps_at_the_end_and_does_not_turn_is_gla(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}

    @quick
    def rules():
        return attention.gla(*qkv(stream), **gates), attention.mamba3(
            *qkv(stream), **gates, trapezoid=1.0
        )

    (want, last), (got, end) = rules()
    close(got, want, 1e-13)
    close(end.matrix, last.matrix, 1e-13)
    with pytest.raises(ValueError, match=r"angle must have one for each pair.*at most 2 of 5"):
        attention.mamba3(*qkv(stream), angle=np.ones((B, T, H, 3)))


@pytest.mark.slow
def test_preconditioning_by_one_is_gated_delta(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    want, _ = compiled.gated_delta(*qkv(stream), **gates)
    close(compiled.preconditioned_delta(*qkv(stream), **gates, base=1.0)[0], want, 1e-13)


@pytest.mark.full
def test_every_head_has_its_own_centre_of_the_curvature(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    centers = np.linspace(-1.0, 0.5, H)
    together, _ = compiled.preconditioned_delta(*qkv(stream), **gates, center=centers)
    for h, center in enumerate(centers):
        alone, _ = compiled.preconditioned_delta(*qkv(stream), **gates, center=center)
        close(together[:, :, h], alone[:, :, h], 1e-13)
    assert np.abs(together[:, :, -1] - alone[:, :, 0]).max() > 1e-3
    with pytest.raises(ValueError, match="center must be finite"):
        compiled.preconditioned_delta(*qkv(stream), **gates, center=np.nan)


@pytest.mark.slow
def test_newer_delta_rules_are_the_older_ones_at_their_simplest(stream):
    q, k, v, g, w = (stream[n] for n in "qkvgw")
    vector = jnp.broadcast_to(g[..., None], k.shape)
    pairs = [jnp.stack([x, jnp.flip(x, 1)], 3) for x in (k, v)]
    rows = [x.swapaxes(2, 3).reshape(B, 2 * T, H, -1) for x in pairs]  # one step after the other
    twice = jnp.repeat(w, 2, 1)

    @quick
    def both():
        gated = attention.gated_delta(q, k, v, forget=g, weight=w)
        comba = attention.comba(q, k, v, forget=g, weight=w)
        removal = {"removal_key": k, "removal_rate": w[..., None]}
        steps = jnp.stack([w, w], -1)
        return (
            (attention.kda(q, k, v, forget=vector, weight=w), gated),
            (attention.kda(q, k, v, forget=g, weight=w), gated),
            (attention.gated_delta_product(
                q, k[:, :, :, None], v[:, :, :, None], forget=g, weight=w[..., None]), gated),
            (attention.comba(q, k, v, weight=w), attention.delta(q, k, v, weight=w)),
            (attention.rwkv7(q, w[..., None] * k, v, forget=g, **removal), comba),
            (attention.gated_delta_product(q, *pairs, weight=steps),
             [x[:, 1::2] if i == 0 else x for i, x in enumerate(attention.delta(
                 jnp.repeat(q, 2, 1), *rows, weight=twice))]),
        )  # fmt: skip

    for (got, end), (want, last) in both():
        close(got, want, 1e-12)
        close(end.matrix, last.matrix, 1e-12)


def walked(keys, values, weight, drift, precision):
    """Coefficients of the filter that keeps the whole covariance."""
    walk = olsq.forgetting.RandomWalk(drift * weight)
    fit = olsq.RecursiveLeastSquares(forget=walk, ridge=precision / weight, fit_intercept=False)
    return fit.fit(keys, values).coef_


@pytest.mark.full
@pytest.mark.parametrize("information", [1.0, None])
def test_kalman_delta_is_the_random_walks_filter_where_the_covariance_is_diagonal(information):
    rng = np.random.default_rng(3)
    weight, drift, precision = 3.0, 0.05, 2.0
    sizes = rng.uniform(0.5, 2, (T, 1))
    axes, any_key = np.eye(K)[rng.integers(0, K, T)] * sizes, rng.normal(size=(T, K))
    values = rng.normal(size=(T, V))
    off = []
    for keys in (axes, any_key):
        k, v = jnp.asarray(keys)[None, :, None], jnp.asarray(values)[None, :, None]
        _, state = compiled.kalman_delta(
            k, k, v, weight=weight, drift=drift, information=information,
            initial_precision=precision,
        )  # fmt: skip
        want = walked(keys, values, weight, drift, precision)
        off.append(np.abs(state.matrix[0, 0] - want).max() / np.abs(want).max())
    exact = information == 1.0
    assert (off[0] < 1e-12) == exact
    assert 0.01 < off[1] < 1  # the covariances between columns are neglected


@pytest.mark.full
def test_isotropic_kalman_delta_has_the_mean_of_the_diagonal_one_for_even_keys(stream):
    q, _, v = qkv(stream)
    even = jnp.where(stream["k"] > 0, 1, -1) / np.sqrt(K)
    options = {"forget": stream["g"], "weight": stream["w"], "drift": 0.1, "initial_precision": 0.5}
    got, state = compiled.kalman_delta(q, even, v, **options, isotropic=True)
    want, last = compiled.kalman_delta(q, even, v, **options)
    close(got, want, 1e-13)
    close(state.covariance, last.covariance, 1e-13)
    assert state.covariance.shape == (B, H, 1)


@pytest.mark.full
def test_momentum_delta_without_momentum_is_gated_delta(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    want, last = compiled.gated_delta(*qkv(stream), **gates)
    got, state = compiled.momentum_delta(*qkv(stream), **gates, momentum=0.0)
    close(got, want, 1e-13)
    close(state.matrix, last.matrix, 1e-13)
    # read=k takes the error before forgetting, as comba does
    want, last = compiled.comba(*qkv(stream), **gates)
    got, state = compiled.momentum_delta(*qkv(stream), **gates, momentum=0.0, read=stream["k"])
    close(got, want, 1e-13)


@pytest.mark.full
def test_momentum_delta_is_gradient_descent_with_momentum(stream):
    """As the authors' recurrence has it, whose momentum has the other sign."""
    q, k, v = (np.asarray(x)[0, :, 0] for x in qkv(stream))
    alpha, eta = (np.asarray(stream[n])[0, :, 0] for n in "gw")
    S = M = np.zeros((K, V))
    out = []
    for t in range(T):
        w = -(v[t] - (alpha[t] * k[t]) @ S)
        M = 0.7 * M + np.outer(eta[t] * k[t], w)
        S = alpha[t] * S - 0.5 * M
        out.append(q[t] @ S)
    got, state = compiled.momentum_delta(
        *qkv(stream), forget=stream["g"], weight=stream["w"], momentum=0.7, step_size=0.5
    )
    close(got[0, :, 0], np.array(out), 1e-12)
    close(state.velocity[0, 0], -M.T, 1e-12)


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "wrong", "what"),
    [
        ("momentum_delta", {"momentum": 1.1}, r"momentum must lie in \[0, 1\]"),
        ("momentum_delta", {"step_size": -0.1}, "step_size must be >= 0"),
        ("momentum_delta", {"read": np.ones((T, 4))}, "read has shape .* does not broadcast"),
        ("kalman_delta", {"drift": -1e-9}, "drift must be >= 0"),
        ("kalman_delta", {"information": 0.0}, "information must be > 0"),
        ("kalman_delta", {"initial_precision": -1.0}, "initial_precision must be > 0"),
        ("kalman_delta", {"isotropic": True, "drift": np.ones((B, T, H, K))}, "drift has shape"),
    ],
)
def test_what_the_filtered_rules_refuse(stream, rule, wrong, what):
    with pytest.raises(ValueError, match=what):
        getattr(attention, rule)(*qkv(stream), **wrong)


@pytest.mark.full
def test_forgetting_nothing_is_softmax_and_logs_are_gates(stream):
    q, k, v = qkv(stream)

    @quick
    def rules():
        return (
            attention.forgetting(q, k, v)[0], attention.softmax(q, k, v)[0],
            attention.forgetting(q, k, v, forget=stream["g"])[0],
            attention.forgetting(q, k, v, log_forget=jnp.log(stream["g"]))[0],
        )  # fmt: skip

    free, full, gated, logged = rules()
    close(free, full, 1e-13)
    close(logged, gated, 1e-13)
    assert np.abs(gated - full).max() > 0.1


@pytest.mark.full
@pytest.mark.parametrize("rate", [0.0, 89.0, 1000.0, np.inf])
def test_a_step_of_0_of_mamba_keeps_the_memory_whatever_the_rate(rate):
    x = jnp.array([2.0, 1.0, 3.0], jnp.float32)[None, :, None, None]

    def read(steps, rate):
        return compiled.mamba(x, x, x, step=steps[None, :, None, None], rate=rate)[0][0, :, 0, 0]

    steps = jnp.array([0.5, 0.0, 0.0], jnp.float32)
    np.testing.assert_allclose(read(steps, rate), [4.0, 2.0, 6.0], rtol=1e-6)  # 2 . 2 . .5 read
    slope = quick(jax.grad(lambda rate: read(steps, rate).sum()))(jnp.float32(rate))
    assert np.isfinite(slope)


@pytest.mark.full
@pytest.mark.parametrize(("length", "cached"), [(37, triangle.CACHED), (35, 0)])
def test_softmax_by_blocks_is_softmax_of_all_scores(length, cached, monkeypatch):
    monkeypatch.setattr(triangle, "ROWS", 8)  # three pairs of blocks
    # 0: a CPU takes one stream at a time and an accelerator all, two programs that are both traced.
    monkeypatch.setattr(triangle, "CACHED", cached)
    rng = np.random.default_rng(length)
    q, k, v, c = (jnp.asarray(rng.normal(size=(2, length, 1, 3))) for _ in range(4))
    q = 30 * q  # a row's largest score is far from those of other blocks
    ids = np.sort(rng.integers(0, 3, (2, length)), 1)
    seen = np.tril(np.ones((length, length), bool)) & (ids[:, None] == ids[:, :, None])

    def blocks(q, k, v):
        out = attention.softmax(q, k, v, segment_ids=ids)[0]
        return (out * c).sum(), out

    def dense(q, k, v):
        scores = jnp.einsum("bthk,bshk->bts", q, k) / 3**0.5
        share = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        out = jnp.einsum("bts,bshv->bthv", share, v)
        return (out * c).sum(), out

    found, wanted = (quick(jax.grad(f, (0, 1, 2), has_aux=True)) for f in (blocks, dense))
    for got, want in zip(*map(jax.tree.leaves, (found(q, k, v), wanted(q, k, v))), strict=True):
        close(got, want, 1e-12)
    lost = found(q, k.at[1, 20].set(jnp.nan), v)[1]
    reached = (ids[1] == ids[1, 20]) & (np.arange(length) >= 20)
    assert (np.isnan(lost[1, :, 0, 0]) == reached).all()
    assert np.isfinite(lost[0]).all()


@pytest.mark.full
def test_slots_that_hold_a_token_each_are_softmax(stream):
    q, k, v = qkv(stream)
    g = stream["g"]
    own = np.broadcast_to(np.eye(T)[None, :, None], (B, T, H, T))  # one more slot a token
    one = np.ones((B, T, H, 1))

    @quick
    def rules():
        return (
            attention.gsa(q, k, v, forget=0 * own + 1, weight=own, scale=0.5),
            attention.softmax(q, k, v, scale=0.5)[0],
            attention.gsa(q, k, v, forget=g[..., None])[0],
            attention.gla(one, one, v, forget=g, weight=1 - g)[0],
        )

    (o, state), want, single, average = rules()
    close(o[:, -1], want[:, -1], 1e-13)
    close(state.values, np.swapaxes(v, 1, 2), 1e-14)
    close(single, average, 1e-13)


@pytest.mark.full
def test_levels_are_digits_in_which_positions_differ(stream):
    """As the paper's mask, the last level taking what is beyond; weights of 1 are mamba2."""
    q, k, v = qkv(stream)
    g, first, levels = stream["g"], 5, 4  # tokens in a state before these: no power of 2
    weights = np.random.default_rng(1).normal(size=(B, T, H, levels))
    rule = attention.log_linear_mamba2

    @quick
    def rules():
        head, tail = ({"level_weight": weights[:, cut], "forget": g[:, cut]}
                      for cut in (slice(first), slice(first, T)))  # fmt: skip
        _, state = rule(*(x[:, :first] for x in (q, k, v)), **head)
        parts = rule(*(x[:, first:] for x in (q, k, v)), **tail, state=state)
        plain = rule(q, k, v, level_weight=0 * weights + 1, forget=g)
        return parts, plain, attention.mamba2(q, k, v, forget=g)

    (o, end), (plain, memories), (want, last) = rules()
    t, i = np.indices((T, T))
    digits = np.vectorize(lambda a, b: int(a ^ b).bit_length())(t, i)
    level = np.minimum(digits, levels - 1)
    for b, h in np.ndindex(B, H):
        a, x, y = (np.asarray(s[b, :, h]) for s in (q, k, v))
        total = np.cumprod(g[b, :, h])  # gates from .8 on: 40 of them divide well
        mask = np.where(i <= t, weights[b, t, h, level] * (total[:, None] / total), 0)
        close(o[b, :, h], ((a @ x.T) * mask @ y)[first:], 1e-12)
    assert (np.asarray(end.position) == T).all()
    close(plain, want, 1e-13)
    close(memories.matrix.sum(2), last.matrix, 1e-13)


@pytest.mark.slow
def test_intention_is_the_last_row_of_mesa(stream):
    want, state = compiled.mesa(*qkv(stream), weight=stream["w"], ridge=0.3)
    got, moments = compiled.intention(*qkv(stream), weight=stream["w"], ridge=0.3)
    close(got[:, -1], want[:, -1], 1e-12)
    close(moments.gram, state.gram, 1e-13)


@pytest.mark.slow
def test_a_window_longer_than_the_stream_is_no_window(stream):
    gates = {"forget": stream["g"], "weight": stream["w"], "ridge": 0.3}
    want, _ = compiled.mesa(*qkv(stream), **gates)
    close(compiled.mesa_window(*qkv(stream), **gates, window=T)[0], want, 1e-11)
    full, _ = compiled.softmax(*qkv(stream))
    close(compiled.sliding_window(*qkv(stream), window=T)[0], full, 1e-12)
    close(compiled.sliding_window(*qkv(stream), window=1)[0], stream["v"], 1e-14)


@pytest.mark.slow
def test_kalman_solved_exactly_is_mesa_with_its_ridge(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    k, g, w = (np.asarray(stream[n])[0, :, 0] for n in "kgw")
    hessian, ridge = np.zeros((K, K)), np.zeros((1, T, 1, K))
    for t in range(T):
        hessian = g[t] * hessian + w[t] * np.outer(k[t], k[t])
        ridge[0, t] = 0.1 * np.linalg.norm(hessian)
    exact = {"solver": olsq.ChunkExact()}
    got, _ = compiled.kalman(*qkv(stream), **gates, ratio=0.1, **exact)
    one = [x[:1, :, :1] for x in qkv(stream)]
    gates = {n: x[:1, :, :1] for n, x in gates.items()}
    want, _ = compiled.mesa(*one, **gates, ridge=ridge)
    close(got[:1, :, :1], want, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 3])
def test_mesa_stores_in_one_shot_what_delta_repeats(copies):
    """Correlated keys: mesa recalls every pair after one pass, delta only after many."""
    rng = np.random.default_rng(3)
    k = rng.normal(size=(4, K)) + 1.5
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.normal(size=(4, V))
    keys, values = (jnp.asarray(np.tile(x, (copies, 1)))[None, :, None] for x in (k, v))
    ask = jnp.asarray(k)[None, :, None]

    def recall(rule, **options):
        _, state = rule(keys, keys, values, **options)
        if isinstance(state, olsq.Moments):
            found = olsq.query(state, ask[:, :, 0], ridge=1e-8)
        else:
            found = jnp.einsum("bhvk,bthk->btv", state.matrix, ask)
        return float(jnp.abs(found - v).max() / np.abs(v).max())

    assert recall(attention.mesa, ridge=1e-8) < 1e-5
    assert recall(attention.delta) > 1e-2


def test_every_rule_has_a_row_and_every_row_a_rule():
    named = {r.name for r in RULES}
    exported = {n for n in attention.__all__ if n.islower() and not n.endswith("_step")}
    assert named == exported
    assert all(r.function.__doc__ for r in RULES)
    assert [r.name for r in RULES if r.one_token is None] == ["intention"]


@pytest.mark.slow
def test_a_reset_inside_a_discounted_segment_is_lost_until_the_next_segment(stream):
    """Nothing before it is touched; the next segment starts with its ridge."""
    ids = np.repeat([[0, 1]], T // 2, 1)[[0, 0]]
    forget = np.full((B, T, H), 0.9)
    forget[:, 10] = 0
    options = {"weight": stream["w"], "ridge": 0.5}
    got, state = compiled.mesa_discounted(*qkv(stream), **options, forget=forget, segment_ids=ids)
    plain = np.where(forget == 0, 0.9, forget)
    want, last = compiled.mesa_discounted(*qkv(stream), **options, forget=plain, segment_ids=ids)
    lost = np.isnan(got).any((0, 2, 3))
    assert np.array_equal(np.flatnonzero(lost), np.arange(10, T // 2))
    close(got[:, ~lost], want[:, ~lost], 1e-13)
    close(state.gram, last.gram, 1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["mesa", "mesa_discounted"])
def test_a_truncated_solver_decodes_what_it_prefills(stream, rule):
    few = olsq.ConjugateGradient(max_steps=2, tol=0.0)
    gates = {"forget": stream["g"], "weight": stream["w"]}
    whole, step = getattr(compiled, rule), getattr(compiled, f"{rule}_step")
    want, _ = whole(*qkv(stream), **gates, ridge=0.5, solver=few)
    state, out = None, []
    for t in range(6):
        now = {n: x[:, t] for n, x in gates.items()}
        ridge = 0.5 if rule == "mesa" or state is None else None
        one = (x[:, t] for x in qkv(stream))
        o, state = step(*one, **now, ridge=ridge, solver=few, state=state)
        out.append(o)
    close(jnp.stack(out, 1), want[:, :6], 1e-12)


GATED = (
    "gla", "mamba2", "gated_delta", "preconditioned_delta", "mlstm", "rwkv6", "mesa",
    "mesa_discounted", "mesa_window", "kalman", "momentum_delta", "kalman_delta",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", GATED)
def test_gates_as_logs_are_the_same_gates(stream, name):
    options = {"mesa_window": {"window": 8, "ridge": 0.5}, "rwkv6": {"bonus": np.ones((H, K))}}
    if name in ("mesa", "mesa_discounted"):
        options[name] = {"ridge": 0.5}
    rule, fixed = getattr(compiled, name), options.get(name, {})
    want, last = rule(*qkv(stream), **fixed, forget=stream["g"])
    got, state = rule(*qkv(stream), **fixed, log_forget=jnp.log(stream["g"]))
    close(got, want, 1e-11)
    close(state[0], last[0], 1e-12)


@pytest.mark.full
def test_kalmans_chebyshev_steps_reach_what_they_promise(stream):
    gates = {"forget": stream["g"], "weight": stream["w"]}
    got, _ = compiled.kalman(*qkv(stream), **gates)
    want, _ = compiled.kalman(*qkv(stream), **gates, solver=olsq.ChunkExact())
    close(got, want, 1e-3)  # the bound is 3e-4 in the energy norm


@pytest.mark.full
def test_kalman_takes_the_steps_of_the_published_layer(stream):
    """Chebyshev's, from q times the step size, between Lambda and Lambda + |H|; then the mix."""
    ratio, steps, mix = 0.05, 4, 0.7
    solver = olsq.Chebyshev(steps, eigenvalue_ratio=1 / ratio)
    gates = {"forget": stream["g"], "weight": stream["w"] ** 2}  # that multiplies keys and values
    got, _ = compiled.kalman(*qkv(stream), **gates, ratio=ratio, mix=mix, solver=solver)
    q, k, v, g, w = (np.asarray(stream[n])[0, :, 0] for n in "qkvgw")
    gram, cross, want = np.zeros((K, K)), np.zeros((V, K)), []
    for t in range(T):
        gram = g[t] * gram + np.outer(w[t] * k[t], w[t] * k[t])
        cross = g[t] * cross + np.outer(w[t] * v[t], w[t] * k[t])
        size = np.linalg.norm(gram)
        ridge = ratio * size
        step = 2 / (2 * ridge + size)
        quarter = (size / (2 * ridge + size)) ** 2 / 4
        before, x, omega = np.zeros(K), step * q[t], 2.0
        for _ in range(steps):
            omega = 1 / (1 - quarter * omega)
            residual = gram @ x + ridge * x - q[t]
            before, x = x, omega * (x - step * residual) + (1 - omega) * before
        want.append(cross @ (mix * x + (1 - mix) * q[t]))
    close(got[0, :, 0], np.array(want), 1e-11)


@pytest.mark.slow
def test_the_query_factor_is_that_of_the_released_ttt_models():
    """``eta[t, i] = c_t lr_i``: the query's place multiplies all its mini-batch's steps."""
    rng, m, d = np.random.default_rng(3), 3, 4
    q, k, v = rng.normal(size=(3, 2 * m, d))
    lr, c = rng.uniform(0, 0.2, 2 * m), np.maximum(1 / np.arange(1, m + 1) + [0, -0.6, 0.2], 0)
    weights = [rng.normal(size=s) for s in ((2 * d, d), (2 * d,), (d, 2 * d), (d,))]
    given = {"learning_rate": lr, "eps": 0.01, "mini_batch": m, "query_factor": c}
    for oracle, rule, start in (
        (solved.ttt_linear, attention.ttt_linear, [weights[2] @ weights[0], weights[3]]),
        (solved.ttt_mlp, attention.ttt_mlp, weights),
    ):
        here, want = start, []
        for first in (0, m):
            places = range(first, first + m)
            steps = [solved.ttt_gradient(here, k[i], v[i], 1.0, 0.0, 0.01) for i in places]
            for t in range(m):
                eta = c[t] * lr[first : first + t + 1]
                read = [
                    w - sum(e * s[j] for e, s in zip(eta, steps[: t + 1], strict=True))
                    for j, w in enumerate(here)
                ]
                x = q[first + t]
                want.append(x + solved.layer_norm(solved.network(read, x), 1.0, 0.0, 0.01))
            here = read
        close(oracle(q, k, v, initial=start, **given)[0], np.array(want), 1e-13)
        arrays = (jnp.asarray(x)[None, :, None] for x in (q, k, v))
        given_rates = {**given, "learning_rate": jnp.asarray(lr)[None, :, None]}
        got, _ = rule(*arrays, initial=[w[None] for w in start], **given_rates)
        close(np.asarray(got)[0, :, 0], np.array(want), 1e-12)


@pytest.mark.slow
def test_derivatives_take_the_maximum_of_mlstm_for_a_constant_and_are_right(stream):
    """Through a state as through the whole; only the field itself, changed alone, has none."""
    q, k, v = (x[:1, :6, :1] for x in qkv(stream))
    logs = 3 * jnp.sin(jnp.arange(6.0))[None, :, None]
    at, bump = (0, 1, 0), 1e-5

    def late(state, logs, k):
        out, _ = attention.mlstm(q[:, 3:], k[:, 3:], v[:, 3:], log_weight=logs[:, 3:], state=state)
        return out.sum()

    def early(logs, k):
        return attention.mlstm(q[:, :3], k[:, :3], v[:, :3], log_weight=logs[:, :3])[1]

    def whole(logs, k):
        return attention.mlstm(q, k, v, log_weight=logs)[0][:, 3:].sum()

    @quick
    def everything(logs, k):
        split = jax.grad(lambda logs, k: late(early(logs, k), logs, k), (0, 1))(logs, k)
        rise = whole(logs.at[at].add(bump), k) - whole(logs.at[at].add(-bump), k)
        state = early(logs, k)

        def alone(maximum):
            return late(state._replace(maximum=maximum), logs, k)

        change = alone(state.maximum + 0.1) - alone(state.maximum)
        slope = jax.grad(alone)(state.maximum)
        return split, jax.grad(whole, (0, 1))(logs, k), rise / (2 * bump), slope, change

    split, want, rise, slope, change = everything(logs, k)
    for a, b in zip(split, want, strict=True):
        close(a, b, 1e-12)
    assert want[0][at] == pytest.approx(float(rise), rel=1e-6)
    assert not np.asarray(slope).any()
    assert abs(change) > 1e-3
