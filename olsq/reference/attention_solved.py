"""Oracles of the rules with a softmax, a solve, a filter or a network, token by token in float64.

The conventions are those of ``attention``: one stream of one head, NumPy, float64.  Where a rule's
state is a store of past tokens, no state is given back: go on by giving the past again.
"""

from __future__ import annotations

import numpy as np

from olsq.reference import sequence
from olsq.reference.attention import f64, gate_factors, initial_state, per_token, stacked


def softmax(q, k, v, *, scale=None, window=None):
    """Attend by softmax over all tokens so far, or the last ``window`` of them."""
    q, k, v = f64(q, k, v)
    scale = q.shape[1] ** -0.5 if scale is None else scale
    out = []
    for t in range(len(q)):
        span = slice(0 if window is None else max(0, t + 1 - window), t + 1)
        score = scale * k[span] @ q[t]
        a = np.exp(score - score.max())
        out.append(a @ v[span] / a.sum())
    return stacked(out, v.shape[1]), ()


def _seen_shares(q, k, t, scale, window):
    """Find the tokens that query t sees, and their shares of its attention."""
    span = slice(0 if window is None else max(0, t + 1 - window), t + 1)
    score = (k.shape[1] ** -0.5 if scale is None else scale) * k[span] @ q[t]
    a = np.exp(score - score.max())
    return span, a / a.sum()


def local_linear(q, k, v, *, ridge, scale=None, window=None):
    """Fit v by a line in k at every query: a dense regression of weighted rows, as written.

    min over a, B of  sum_i p_i |v_i - a - B (k_i - q)|^2 + ridge |B|^2;  o = a.
    """
    q, k, v = f64(q, k, v)
    ridge = per_token(ridge, len(q))
    d, out = k.shape[1], []
    for t in range(len(q)):
        span, p = _seen_shares(q, k, t, scale, window)
        root = np.sqrt(p)[:, None]
        rows = root * np.concatenate([np.ones((len(p), 1)), k[span] - q[t]], 1)
        penalty = np.sqrt(ridge[t]) * np.eye(d + 1)[1:]
        design = np.concatenate([rows, penalty])
        target = np.concatenate([root * v[span], np.zeros((d, v.shape[1]))])
        out.append(np.linalg.lstsq(design, target, rcond=None)[0][0])
    return stacked(out, v.shape[1]), ()


def parallax(q, k, v, *, direction, scale=None, window=None):
    """Compute o = vbar (1 + E[r . k]) - E[v (r . k)], as written, r the direction."""
    q, k, v, r = f64(q, k, v, direction)
    out = []
    for t in range(len(q)):
        span, p = _seen_shares(q, k, t, scale, window)
        along = p * (k[span] @ r[t])
        out.append(p @ v[span] * (1 + along.sum()) - along @ v[span])
    return stacked(out, v.shape[1]), ()


def forgetting(q, k, v, *, forget=None, log_forget=None, scale=None):
    """Attend by softmax over all tokens so far, each times the gates after it."""
    q, k, v = f64(q, k, v)
    gamma = gate_factors(forget, log_forget, len(q))
    scale = q.shape[1] ** -0.5 if scale is None else scale
    out = []
    for t in range(len(q)):
        score = scale * k[: t + 1] @ q[t]
        a = np.exp(score - score.max())
        a[:-1] *= np.cumprod(gamma[t:0:-1])[::-1]  # of token i: the gates of i + 1 to t
        out.append(a @ v[: t + 1] / a.sum())
    return stacked(out, v.shape[1]), ()


def gsa(q, k, v, *, forget=None, log_forget=None, weight=None, scale=1.0, state=None):
    """Update the slots by one gate each; o = softmax(scale (slot keys) q) (slot values)."""
    q, k, v = f64(q, k, v)
    a = gate_factors(forget, log_forget, len(q))
    w = -np.expm1(*f64(log_forget)) if log_forget is not None else 1 - a
    w = w if weight is None else np.broadcast_to(per_token(weight, len(q)).T, a.T.shape).T
    keys, values = initial_state(state, (a.shape[1], k.shape[1]), (a.shape[1], v.shape[1]))
    out = []
    for t in range(len(q)):
        keys = a[t][:, None] * keys + np.outer(w[t], k[t])
        values = a[t][:, None] * values + np.outer(w[t], v[t])
        score = np.exp(scale * (keys @ q[t]) - max(scale * (keys @ q[t])))
        out.append(score @ values / score.sum())
    return stacked(out, v.shape[1]), (keys, values)


def sliding_window(q, k, v, *, window, scale=None):
    """Attend by softmax over the last ``window`` tokens."""
    return softmax(q, k, v, window=window, scale=scale)


def mesa(q, k, v, *, forget=None, weight=None, ridge, state=None):
    """Solve the ridge regression on everything so far at each token; the ridge stays."""
    path = sequence.solve(
        k,
        v,
        q,
        forget=per_token(forget, len(q)),
        weight=per_token(weight, len(q)),
        ridge=ridge,
        ridge_mode="fixed",
        state=state,
    )
    return path.value, (path.grams[-1], path.crosses[-1])


def mesa_signed(q, k, v, *, forget=None, weight=None, ridge, state=None):
    """Run :func:`mesa` with gates in [-1, 1]: NaN where a system is not positive definite."""
    path = sequence.solve(
        k,
        v,
        q,
        forget=per_token(forget, len(q)),
        weight=per_token(weight, len(q)),
        ridge=ridge,
        ridge_mode="fixed",
        state=state,
    )
    sound = np.linalg.eigvalsh(path.systems)[:, :1] > 0
    return np.where(sound, path.value, np.nan), (path.grams[-1], path.crosses[-1])


def mesa_discounted(q, k, v, *, forget=None, weight=None, ridge=None, state=None):
    """Solve the regression whose ridge is part of the first gram and forgotten with the data."""
    path = sequence.solve(
        k,
        v,
        q,
        forget=per_token(forget, len(q)),
        weight=per_token(weight, len(q)),
        ridge=ridge,
        ridge_mode="discounted",
        state=state,
    )
    return path.value, (path.grams[-1], path.crosses[-1])


def mesa_channel(q, k, v, *, forget=None, log_forget=None, weight=None, ridge, state=None):
    """Run H = D H D + beta k k^T, D = diag(a)^(1/2); S += beta (v - S k) ((H + ridge)^-1 k)^T."""
    q, k, v, ridge = f64(q, k, v, ridge)
    a, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    d, m = k.shape[1], v.shape[1]
    S, H = initial_state(state, (m, d), (d, d))
    floor, out = np.diag(np.broadcast_to(ridge, d)), []
    for t in range(len(q)):
        D = np.sqrt(np.broadcast_to(a[t], d))
        H = D[:, None] * H * D + beta[t] * np.outer(k[t], k[t])
        S = S + beta[t] * np.outer(v[t] - S @ k[t], np.linalg.solve(H + floor, k[t]))
        out.append(S @ q[t])
    return stacked(out, m), (S, H)


def mesa_window(q, k, v, *, window, forget=None, weight=None, ridge):
    """Solve the ridge regression on the last ``window`` tokens at each token."""
    q, k, v, ridge = f64(q, k, v, ridge)
    gamma, beta = per_token(forget, len(q)), per_token(weight, len(q))
    d, m, out = k.shape[1], v.shape[1], []
    for t in range(len(q)):
        gram, cross = np.zeros((d, d)), np.zeros((m, d))
        for i in range(max(0, t + 1 - window), t + 1):
            w = beta[i] * np.prod(gamma[i + 1 : t + 1])
            gram, cross = gram + w * np.outer(k[i], k[i]), cross + w * np.outer(v[i], k[i])
        out.append(cross @ np.linalg.solve(gram + np.diag(np.broadcast_to(ridge, d)), q[t]))
    return stacked(out, m), ()


def kalman(q, k, v, *, forget=None, weight=None, ratio=0.02, mix=None, state=None):
    """Run o = G (mix (H + ratio |H| I)^-1 q + (1 - mix) q); 0 before any key."""
    q, k, v = f64(q, k, v)
    gamma, beta, mix = (per_token(x, len(q)) for x in (forget, weight, mix))
    d, m = k.shape[1], v.shape[1]
    H, G = initial_state(state, (d, d), (m, d))
    out = []
    for t in range(len(q)):
        H = gamma[t] * H + beta[t] * np.outer(k[t], k[t])
        G = gamma[t] * G + beta[t] * np.outer(v[t], k[t])
        ridge = ratio * np.sqrt((H**2).sum())
        x = np.linalg.solve(H + ridge * np.eye(d), q[t]) if ridge > 0 else np.zeros(d)
        out.append(G @ (mix[t] * x + (1 - mix[t]) * q[t]))
    return stacked(out, m), (H, G)


def kalman_delta(
    q,
    k,
    v,
    *,
    forget=None,
    log_forget=None,
    weight=None,
    drift=0.0,
    information=None,
    initial_precision=1.0,
    isotropic=False,
    state=None,
):
    """Run z = a^2 / c + omega, S = S diag(a), S = S + (v - S k) g^T with g = z k / (r + z . k^2),
    and c = 1 / z + info k^2 / r, r = 1 / weight; means over the dimensions if isotropic.
    """
    q, k, v = f64(q, k, v)
    a, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    omega, width = per_token(drift, len(q)), k.shape[1]
    info = width if information is None else information
    S, p = initial_state(state, (v.shape[1], width), (1 if isotropic else width,))
    if state is None:
        p = p + 1 / initial_precision
    out = []
    for t in range(len(q)):
        square, learned = a[t] ** 2 * np.ones(width), info * beta[t] * k[t] ** 2
        if isotropic:
            square, learned = square.mean(), learned.mean()
        z = square * p + omega[t]
        S = S * a[t]
        S = S + np.outer(v[t] - S @ k[t], beta[t] * z * k[t] / (1 + beta[t] * (z * k[t]) @ k[t]))
        p = z / (1 + learned * z)
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S, p)


def intention(q, k, v, *, weight=None, ridge, state=None):
    """Compute o_t = G (H + ridge)^-1 q_t with the moments of the whole sequence."""
    q, k, v, ridge = f64(q, k, v, ridge)
    beta = per_token(weight, len(q))
    d, m = k.shape[1], v.shape[1]
    H, G = initial_state(state, (d, d), (m, d))
    for t in range(len(k)):
        H, G = H + beta[t] * np.outer(k[t], k[t]), G + beta[t] * np.outer(v[t], k[t])
    system = H + np.diag(np.broadcast_to(ridge, d))
    return stacked([G @ np.linalg.solve(system, x) for x in q], m), (H, G)


def layer_norm(y, scale, bias, eps):
    centred = y - y.mean()
    return scale * centred / np.sqrt((centred**2).mean() + eps) + bias


def layer_norm_pull(y, upstream, scale, eps):
    """Compute the gradient at y of ``upstream . layer_norm(y)``."""
    sigma = np.sqrt(y.var() + eps)
    unit, g = (y - y.mean()) / sigma, scale * upstream
    return (g - g.mean() - unit * (g * unit).mean()) / sigma


ROOT = np.sqrt(2 / np.pi)  # gelu is jax.nn.gelu's default, the tanh form


def gelu(a):
    return 0.5 * a * (1 + np.tanh(ROOT * (a + 0.044715 * a**3)))


def gelu_slope(a):
    tanh = np.tanh(ROOT * (a + 0.044715 * a**3))
    return 0.5 * (1 + tanh) + 0.5 * a * (1 - tanh**2) * ROOT * (1 + 3 * 0.044715 * a**2)


def network(weights, x):
    """Apply a network: linear (W, b) or two-layer (W1, b1, W2, b2)."""
    if len(weights) == 4:
        x = gelu(weights[0] @ x + weights[1])
    return weights[-2] @ x + weights[-1]


def ttt_loss(weights, k, v, scale, bias, eps):
    """Compute |f(k) - v|^2 / 2 with f(x) = x + LN(network(x))."""
    return 0.5 * ((k + layer_norm(network(weights, k), scale, bias, eps) - v) ** 2).sum()


def ttt_gradient(weights, k, v, scale, bias, eps):
    """Compute the gradient of :func:`ttt_loss` in every weight, by hand."""
    y = network(weights, k)
    error = k + layer_norm(y, scale, bias, eps) - v
    dy = layer_norm_pull(y, error, scale, eps)
    if len(weights) == 2:
        return np.outer(dy, k), dy
    before = weights[0] @ k + weights[1]
    da = (weights[2].T @ dy) * gelu_slope(before)
    return np.outer(da, k), da, np.outer(dy, gelu(before)), dy


def ttt(q, k, v, rates, weights, start, position, scale, bias, eps, mini_batch, query_factor):
    """Train token by token: gradients at the weights a mini-batch starts with, t reads after its
    step.

    The weights read are the fraction of the way from the start that the place's factor gives.
    """
    factor = np.broadcast_to(1.0 if query_factor is None else query_factor, mini_batch)
    out = []

    def read_weights(place):
        return [s + factor[place] * (w - s) for w, s in zip(weights, start, strict=True)]

    for t in range(len(q)):
        if position == mini_batch:
            weights = start = read_weights(-1)
            position = 0
        step = ttt_gradient(start, k[t], v[t], scale, bias, eps)
        weights = [w - rates[t] * g for w, g in zip(weights, step, strict=True)]
        read = read_weights(position)
        out.append(q[t] + layer_norm(network(read, q[t]), scale, bias, eps))
        position += 1
    return stacked(out, v.shape[1]), weights, start, position


def ttt_linear(
    q,
    k,
    v,
    *,
    learning_rate,
    initial=None,
    norm_scale=1.0,
    norm_bias=0.0,
    eps=1e-6,
    mini_batch=16,
    query_factor=None,
    state=None,
):
    """Train f(x) = x + LN(W x + b), from the weights ``initial``, or 0."""
    if initial is None:
        d = np.shape(k)[1]
        initial = np.zeros((d, d)), np.zeros(d)
    norm = norm_scale, norm_bias, eps
    return _train(q, k, v, learning_rate, initial, state, norm, mini_batch, query_factor)


def ttt_mlp(
    q,
    k,
    v,
    *,
    learning_rate,
    initial=(),
    norm_scale=1.0,
    norm_bias=0.0,
    eps=1e-6,
    mini_batch=16,
    query_factor=None,
    state=None,
):
    """Train f(x) = x + LN(W2 gelu(W1 x + b1) + b2), from the weights ``initial``."""
    norm = norm_scale, norm_bias, eps
    return _train(q, k, v, learning_rate, initial, state, norm, mini_batch, query_factor)


def _train(q, k, v, learning_rate, initial, state, norm, mini_batch, query_factor):
    """Train a network from the weights ``initial``, or from those of the state."""
    q, k, v, rates, scale, bias = f64(q, k, v, per_token(learning_rate, len(q)), *norm[:2])
    *fields, position = f64(*initial, *initial, 0) if state is None else f64(*state)
    now, start = fields[: len(fields) // 2], fields[len(fields) // 2 :]
    out, weights, start, position = ttt(
        q, k, v, rates, now, start, int(position), scale, bias, norm[2], mini_batch, query_factor
    )
    return out, (*weights, *start, position)
