"""Oracle of every attention rule, token by token in float64: recurrences as the papers print them.

One function per rule, of one stream of one head: q and k (T, K), v (T, V), gates (T,) or one per
dimension (T, K), everything NumPy.  Each returns the outputs (T, V) and the final state as a tuple
in the order of the rule's named tuple.  Nothing here shares code with what it checks.  Rules that
read by softmax, by a solve or through a network are in ``attention_solved``.
"""

from __future__ import annotations

import numpy as np


def f64(*arrays):
    return [np.asarray(a, dtype=np.float64) for a in arrays]


def gate_factors(forget, log_forget, length):
    """Return gates (T,) or (T, K), from factors or their logs; 1 where neither is given."""
    if log_forget is not None:
        return np.exp(np.asarray(log_forget, dtype=np.float64))
    return per_token(1.0 if forget is None else forget, length)


def per_token(x, length):
    """Broadcast a number to (T,); return an array with a value per token as it is."""
    x = np.asarray(1.0 if x is None else x, dtype=np.float64)
    return np.broadcast_to(x, (length,)) if x.ndim == 0 else x


def initial_state(state, *shapes):
    """Return the fields of a given state, or zeros."""
    return [np.zeros(s) for s in shapes] if state is None else f64(*state)


def stacked(outputs, width):
    return np.array(outputs, dtype=np.float64).reshape(-1, width)


def phi(x, feature_map, nu):
    """Compute the features of one vector."""
    if feature_map == "identity":
        return x
    if feature_map == "elu":
        return np.array([a + 1 if a > 0 else np.exp(a) for a in x])
    r = [max(a, 0) for a in x] + [max(-a, 0) for a in x]
    n = len(r)
    return np.array([r[j] * r[(j - i) % n] for i in range(1, nu + 1) for j in range(n)])


def linear(q, k, v, *, feature_map="identity", nu=1, normalise=False, weight=None, state=None):
    """Run S += w v phi(k)^T, z += w phi(k); o = S phi(q), or that over z . phi(q)."""
    q, k, v = f64(q, k, v)
    w = per_token(weight, len(q))
    d, m = len(phi(np.zeros(k.shape[1]), feature_map, nu)), v.shape[1]
    S, z = (
        initial_state(state, (m, d), (d,))
        if normalise
        else (*initial_state(state, (m, d)), np.zeros(d))
    )
    out = []
    for t in range(len(q)):
        a, b = phi(k[t], feature_map, nu), phi(q[t], feature_map, nu)
        S = S + w[t] * np.outer(v[t], a)
        z = z + w[t] * a
        o = S @ b
        if normalise:
            o = o / (z @ b) if z @ b != 0 else 0 * o
        out.append(o)
    return stacked(out, m), ((S, z) if normalise else (S,))


def gla(q, k, v, *, forget=None, log_forget=None, weight=None, state=None):
    """Run S = S diag(a) + beta v k^T, the gate one number or one per key dimension."""
    q, k, v = f64(q, k, v)
    a, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        S = S * a[t] + beta[t] * np.outer(v[t], k[t])  # a row of gates scales the columns of S
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def mamba2(q, k, v, *, forget=None, log_forget=None, state=None):
    """Run S = gamma S + v k^T."""
    q, k, v = f64(q, k, v)
    gamma = gate_factors(forget, log_forget, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        S = gamma[t] * S + np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def log_linear_mamba2(q, k, v, *, level_weight, forget=None, log_forget=None, state=None):
    """Run o = sum_l lambda_l S_l q.

    At position p levels up to p's lowest digit 1 merge into the next.

    With L levels, what would be in a level beyond the last is in the last.
    """
    q, k, v, lam = f64(q, k, v, level_weight)
    gamma = gate_factors(forget, log_forget, len(q))
    S, start = initial_state(state, (lam.shape[1], v.shape[1], k.shape[1]), ())
    out = []
    for t in range(len(q)):
        S, p = gamma[t] * S, int(start) + t
        if p:
            lowest = next(i for i in range(64) if p >> i & 1)
            level = min(lowest + 1, len(S) - 1)
            S[level] = S[: level + 1].sum(0)
            S[:level] = 0
        S[0] = S[0] + np.outer(v[t], k[t])
        out.append(sum(lam[t, i] * S[i] @ q[t] for i in range(len(S))))
    return stacked(out, v.shape[1]), (S, start + len(q))


def mamba3(
    q, k, v, *, forget=None, log_forget=None, weight=None, trapezoid=None, angle=None, state=None
):
    """Run S = gamma (S + (1 - x) d v' k'^T) R^T + x d v k^T, R turns by -angle, v', k' the last."""
    q, k, v = f64(q, k, v)
    gamma, d = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    x = per_token(0.5 if trapezoid is None else trapezoid, len(q))
    S, key, value = initial_state(state, (v.shape[1], k.shape[1]), (k.shape[1],), (v.shape[1],))
    out = []
    for t in range(len(q)):
        R = np.eye(k.shape[1])
        for j, a in enumerate(() if angle is None else np.asarray(angle, np.float64)[t]):
            R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [
                [np.cos(a), np.sin(a)],
                [-np.sin(a), np.cos(a)],
            ]
        S = gamma[t] * (S + (1 - x[t]) * d[t] * np.outer(value, key)) @ R.T
        key, value = k[t], v[t]
        S = S + x[t] * d[t] * np.outer(value, key)
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S, key, value)


def retention(q, k, v, *, forget, state=None):
    """Run S = gamma S + v k^T with one number gamma."""
    q, k, v = f64(q, k, v)
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        S = float(forget) * S + np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def hgrn2(q, v, *, forget=None, log_forget=None, state=None):
    """Run S = S diag(a) + v (1 - a)^T."""
    q, v = f64(q, v)
    a = gate_factors(forget, log_forget, len(q))
    (S,) = initial_state(state, (v.shape[1], q.shape[1]))
    out = []
    for t in range(len(q)):
        S = S @ np.diag(a[t]) + np.outer(v[t], 1 - a[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def rwkv6(q, k, v, *, bonus, forget=None, log_forget=None, state=None):
    """Run o = (S + v (bonus k)^T) q, and only then S = S diag(w) + v k^T."""
    q, k, v, bonus = f64(q, k, v, bonus)
    w = gate_factors(forget, log_forget, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        out.append((S + np.outer(v[t], bonus * k[t])) @ q[t])
        S = S * w[t] + np.outer(v[t], k[t])
    return stacked(out, v.shape[1]), (S,)


def mlstm(q, k, v, *, forget=None, log_forget=None, weight=None, log_weight=None, state=None):
    """Run S = f S + i v k^T, z = f z + i k, o = S q / max(1, |z . q|), without any rescaling.

    The state is (S, z, 0): exact, so its scale is exp(0); a given one is multiplied out.
    """
    q, k, v = f64(q, k, v)
    f = gate_factors(forget, log_forget, len(q))
    i = per_token(weight, len(q)) if log_weight is None else np.exp(*f64(log_weight))
    S, z, m = initial_state(state, (v.shape[1], k.shape[1]), (k.shape[1],), ())
    S, z = S * np.exp(m), z * np.exp(m)
    out = []
    for t in range(len(q)):
        S = f[t] * S + i[t] * np.outer(v[t], k[t])
        z = f[t] * z + i[t] * k[t]
        out.append(S @ q[t] / max(1.0, abs(z @ q[t])))
    return stacked(out, v.shape[1]), (S, z, np.zeros(()))


def gated_delta(q, k, v, *, forget=None, log_forget=None, weight=None, state=None):
    """Run S = gamma S (I - beta k k^T) + beta v k^T."""
    q, k, v = f64(q, k, v)
    gamma, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    eye, out = np.eye(k.shape[1]), []
    for t in range(len(q)):
        S = gamma[t] * S @ (eye - beta[t] * np.outer(k[t], k[t])) + beta[t] * np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def delta(q, k, v, *, weight=None, state=None):
    """Run one gradient step per token on |v - S k|^2 / 2, of size beta."""
    q, k, v = f64(q, k, v)
    beta = per_token(weight, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        S = S - beta[t] * np.outer(S @ k[t] - v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def kda(q, k, v, *, forget=None, log_forget=None, weight=None, erase=None, state=None):
    """Run S = S diag(a) (I - beta (b k) k^T) + beta v k^T, a and b scalars or vectors."""
    q, k, v = f64(q, k, v)
    b = per_token(erase, len(q))
    a, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    eye, out = np.eye(k.shape[1]), []
    for t in range(len(q)):
        S = S @ (a[t] * eye) @ (eye - beta[t] * np.outer(b[t] * k[t], k[t]))
        S = S + beta[t] * np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def rwkv7(q, k, v, *, removal_key, removal_rate, forget=None, log_forget=None, state=None):
    """Run S = S (diag(w) - r (a r)^T) + v k^T."""
    q, k, v, r, a = f64(q, k, v, removal_key, removal_rate)
    w = gate_factors(forget, log_forget, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    eye, out = np.eye(k.shape[1]), []
    for t in range(len(q)):
        S = S @ (w[t] * eye - np.outer(r[t], a[t] * r[t])) + np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def comba(q, k, v, *, forget=None, log_forget=None, weight=None, feedback=None, state=None):
    """Run S = S (gamma I - b beta k k^T) + beta v k^T."""
    q, k, v = f64(q, k, v)
    gamma, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    b = per_token(feedback, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    eye, out = np.eye(k.shape[1]), []
    for t in range(len(q)):
        S = S @ (gamma[t] * eye - b[t] * beta[t] * np.outer(k[t], k[t]))
        S = S + beta[t] * np.outer(v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def gated_delta_product(q, k, v, *, forget=None, log_forget=None, weight=None, state=None):
    """Run S = gamma S, then S = S - beta_j (S k_j - v_j) k_j^T for each of k (T, n, K), v (T, n,
    V).
    """
    q, k, v = f64(q, k, v)
    gamma = gate_factors(forget, log_forget, len(q))
    beta = np.broadcast_to(per_token(weight, len(q)).T, k.shape[1::-1]).T
    (S,) = initial_state(state, (v.shape[2], k.shape[2]))
    out = []
    for t in range(len(q)):
        S = gamma[t] * S
        for j in range(k.shape[1]):
            S = S - beta[t, j] * np.outer(S @ k[t, j] - v[t, j], k[t, j])
        out.append(S @ q[t])
    return stacked(out, v.shape[2]), (S,)


def preconditioned_delta(
    q,
    k,
    v,
    *,
    forget=None,
    log_forget=None,
    weight=None,
    curvature_forget=None,
    curvature_weight=None,
    base=1.5,
    center=-0.2,
    eps=1e-6,
    state=None,
):
    """Run a = c a + d k*k, and S = gamma S (I - beta k (M k)^T) + beta v (M k)^T with M from a."""
    q, k, v = f64(q, k, v)
    gamma, beta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    c, d = per_token(curvature_forget, len(q)), per_token(curvature_weight, len(q))
    S, a = initial_state(state, (v.shape[1], k.shape[1]), (k.shape[1],))
    eye, out = np.eye(k.shape[1]), []
    for t in range(len(q)):
        # A token of weight 0 is absent: its gates apply, its key does not enter.
        a = c[t] * a + (d[t] * k[t] ** 2 if beta[t] != 0 else 0)
        s = np.log(a + eps) - center
        written = base ** (-s / (1 + np.abs(s))) * k[t]
        S = S * gamma[t] @ (eye - beta[t] * np.outer(k[t], written))
        S = S + beta[t] * np.outer(v[t], written)
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S, a)


def momentum_delta(
    q,
    k,
    v,
    *,
    forget=None,
    log_forget=None,
    weight=None,
    momentum=0.9,
    step_size=1.0,
    read=None,
    state=None,
):
    """Run M = mu M + eta (v - S p) k^T, S = alpha S + beta M, p = alpha k unless ``read``."""
    q, k, v = f64(q, k, v)
    alpha, eta = gate_factors(forget, log_forget, len(q)), per_token(weight, len(q))
    mu, beta = per_token(momentum, len(q)), per_token(step_size, len(q))
    p = alpha[:, None] * k if read is None else np.asarray(read, np.float64)
    S, M = initial_state(state, *[(v.shape[1], k.shape[1])] * 2)
    out = []
    for t in range(len(q)):
        M = mu[t] * M + eta[t] * np.outer(v[t] - S @ p[t], k[t])
        S = alpha[t] * S + beta[t] * M
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S, M)


def longhorn(q, k, v, *, weight=None, state=None):
    """Run S = S * (1 - d (x) k*k) + (d v) k^T, d = beta / (1 + beta k.k), beta per token or
    channel.
    """
    q, k, v = f64(q, k, v)
    beta = per_token(weight, len(q))
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        d = np.broadcast_to(beta[t] / (1 + beta[t] * (k[t] @ k[t])), v[t].shape)
        S = S * (1 - np.outer(d, k[t] ** 2)) + np.outer(d * v[t], k[t])
        out.append(S @ q[t])
    return stacked(out, v.shape[1]), (S,)


def mamba(q, k, v, *, step, rate, skip=None, state=None):
    """Run S = S * exp(-step (x) 1 * exp(rate)) + (step v) k^T; o = S q + skip v."""
    q, k, v, step, rate = f64(q, k, v, step, rate)
    skip = np.zeros(v.shape[1]) if skip is None else np.asarray(skip, dtype=np.float64)
    (S,) = initial_state(state, (v.shape[1], k.shape[1]))
    out = []
    for t in range(len(q)):
        S = S * np.exp(-step[t][:, None] * np.exp(rate)) + np.outer(step[t] * v[t], k[t])
        out.append(S @ q[t] + skip * v[t])
    return stacked(out, v.shape[1]), (S,)


def rg_lru(x, *, input_gate, recurrence_gate, rate, c=8.0, state=None):
    """Run h = a h + sqrt(1 - a^2) (i x), a = exp(-c softplus(rate) r)."""
    x, i, r, rate = f64(x, input_gate, recurrence_gate, rate)
    (h,) = initial_state(state, x.shape[1:])
    out = []
    for t in range(len(x)):
        a = np.exp(-c * np.log1p(np.exp(rate)) * r[t])
        h = a * h + np.sqrt(1 - a**2) * (i[t] * x[t])
        out.append(h)
    return stacked(out, x.shape[1]), (h,)
