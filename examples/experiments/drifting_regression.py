"""In-context regression whose coefficients drift or switch, and what the best predictors reach.

Token t of a sequence holds the input x_t and the pair before it, (x_{t-1}, y_{t-1}); asked for is
y_t = W_t x_t / sqrt(D) + noise.  Inputs have length sqrt(D) and are correlated, in other directions
in every sequence, so that no weights of a network can whiten them: only what is read can.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

INPUTS, OUTPUTS, NOISE, CONDITION = 8, 4, 0.1, 100.0


class Drift(NamedTuple):
    """How coefficients move: ``W = a W + sqrt(1 - a^2) E`` or, with odds 1 - a, ``W = E``."""

    keep: float  # a: 1 - 1/tau
    switches: bool = False


def draw(
    rng: np.random.Generator, drift: Drift, n: int, length: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inputs (n, T, D) and targets (n, T, M), float64."""
    a, d = drift.keep, INPUTS
    turn = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    x = np.einsum("nij,j,ntj->nti", turn, np.geomspace(1, CONDITION**-0.5, d),
                  rng.normal(size=(n, length, d)))  # fmt: skip
    x *= np.sqrt(d) / np.linalg.norm(x, axis=-1, keepdims=True)
    fresh, switch = rng.normal(size=(length, n, OUTPUTS, d)), rng.random((length, n, 1, 1)) > a
    w, y = fresh[0], np.empty((n, length, OUTPUTS))
    for t in range(length):
        if t and drift.switches:
            w = np.where(switch[t], fresh[t], w)
        elif t:
            w = a * w + np.sqrt(1 - a * a) * fresh[t]
        y[:, t] = np.einsum("nmd,nd->nm", w, x[:, t]) / np.sqrt(d)
    return x, y + NOISE * rng.normal(size=y.shape)


def tokens(x: NDArray, y: NDArray) -> NDArray[np.float32]:
    """What a network reads, (n, T, 2 D + M)."""
    pair = np.concatenate([x, y], -1)
    before = np.concatenate([np.zeros_like(pair[:, :1]), pair[:, :-1]], 1)
    return np.concatenate([x, before], -1).astype(np.float32)


def bayes_errors(x: NDArray, y: NDArray, drift: Drift) -> NDArray[np.float64]:
    """Mean squared error at each position of the posterior mean, which no predictor can beat.

    A Kalman filter; where coefficients switch, one regression for each place at which the last
    switch may have been, mixed by their posterior probabilities (Adams and MacKay 2007).
    """
    n, length, d = x.shape
    x, a = x / np.sqrt(d), drift.keep
    error = np.empty(length)
    # hypotheses (n, R): covariance (n, R, d, d), mean (n, R, d, M), log of their probability
    prior_p, prior_w = np.tile(np.eye(d), (n, 1, 1, 1)), np.zeros((n, 1, d, y.shape[-1]))
    p, w, odds = prior_p, prior_w, np.zeros((n, 1))
    for t in range(length):
        if t and drift.switches and a < 1:
            p, w = np.concatenate([p, prior_p], 1), np.concatenate([w, prior_w], 1)
            odds = np.concatenate([odds + np.log(a), np.full((n, 1), np.log1p(-a))], 1)
        elif t and not drift.switches:
            p, w = a * a * p + (1 - a * a) * np.eye(d), a * w
        now = x[:, t]
        guess = np.einsum("nrdm,nd->nrm", w, now)
        share = np.exp(odds - odds.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        error[t] = np.mean((y[:, t] - np.einsum("nr,nrm->nm", share, guess)) ** 2)
        px = np.einsum("nrij,nj->nri", p, now)
        variance = np.einsum("ni,nri->nr", now, px) + NOISE**2
        missed = y[:, t, None] - guess
        odds = np.log(np.maximum(share, 1e-300)) - 0.5 * (
            y.shape[-1] * np.log(variance) + (missed**2).sum(-1) / variance
        )
        odds -= np.logaddexp.reduce(odds, axis=1, keepdims=True)  # a switch has odds 1 - a of all
        gain = px / variance[..., None]
        w = w + gain[..., None] * missed[:, :, None]
        p = p - gain[..., None] * px[:, :, None]
    return error


def rls_errors(x: NDArray, y: NDArray, forget: float, ridge: float) -> NDArray[np.float64]:
    """Errors of least squares with one forget factor and a ridge that stays."""
    n, length, d = x.shape
    x = x / np.sqrt(d)
    gram, cross = np.zeros((n, d, d)), np.zeros((n, d, y.shape[-1]))
    error = np.empty(length)
    for t in range(length):
        now, target = x[:, t], y[:, t]
        w = np.linalg.solve(gram + ridge * np.eye(d), cross)
        error[t] = np.mean((target - np.einsum("ndm,nd->nm", w, now)) ** 2)
        gram = forget * gram + now[:, :, None] * now[:, None]
        cross = forget * cross + now[:, :, None] * target[:, None]
    return error


def lms_errors(x: NDArray, y: NDArray, forget: float, rate: float) -> NDArray[np.float64]:
    """Errors of one step of gradient descent a pair, the (gated) delta rule with one gate."""
    n, length, d = x.shape
    x = x / np.sqrt(d)
    w, error = np.zeros((n, d, y.shape[-1])), np.empty(length)
    for t in range(length):
        missed = y[:, t] - np.einsum("ndm,nd->nm", w, x[:, t])
        error[t] = np.mean(missed**2)
        w = forget * (w + rate * x[:, t, :, None] * missed[:, None])
    return error


def hebbian_errors(x: NDArray, y: NDArray, forget: float, rate: float) -> NDArray[np.float64]:
    """Errors of a decayed sum of outer products: linear attention with one gate."""
    n, length, d = x.shape
    x = x / np.sqrt(d)
    w, error = np.zeros((n, d, y.shape[-1])), np.empty(length)
    for t in range(length):
        error[t] = np.mean((y[:, t] - np.einsum("ndm,nd->nm", w, x[:, t])) ** 2)
        w = forget * w + rate * x[:, t, :, None] * y[:, t, None]
    return error


FORGET = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
RULES = {
    "least squares": (rls_errors, (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)),
    "one gradient step a pair": (lms_errors, (0.3, 0.5, 0.7, 0.85, 1.0, 1.2)),
    "sum of outer products": (hebbian_errors, (0.05, 0.1, 0.2, 0.3, 0.5)),
}


def references(drift: Drift, seed: int, n: int, length: int, last: int) -> dict[str, dict]:
    """Errors by position of Bayes and of each rule with its best constant gate and rate.

    Gate and rate are chosen on other sequences than the errors are of, by the mean from position
    ``last`` on.
    """
    tuning = draw(np.random.default_rng([seed, 1]), drift, max(n // 4, 16), length)
    x, y = draw(np.random.default_rng([seed, 0]), drift, n, length)
    found: dict[str, dict] = {"Bayes": {"by_position": bayes_errors(x, y, drift).tolist()}}
    for name, (rule, rates) in RULES.items():
        pairs = [(f, r) for f in FORGET for r in rates]
        scores = [rule(*tuning, f, r)[last:].mean() for f, r in pairs]
        forget, rate = pairs[int(np.argmin(scores))]
        found[name] = {
            "by_position": rule(x, y, forget, rate).tolist(), "forget": forget, "rate": rate,
        }  # fmt: skip
    return found
