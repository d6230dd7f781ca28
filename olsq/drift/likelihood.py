"""The diffuse log likelihood of drifting coefficients, its derivatives, and the smoother."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from olsq.drift.kernels import (
    Adjoint,
    Array,
    History,
    Innovations,
    Rows,
    State,
    filter_rows,
    score_rows,
    smooth_rows,
)

BLOCK = 256  # rows whose states are kept at a time on the way back


class Likelihood(NamedTuple):
    """The log likelihood at one drift, and what the way back needs.

    value; s2, the variance of the noise; start (k,), the estimate of theta_0, and spread (k, k),
    with ``spread spread^T`` its covariance in units of s2; the innovations before they know it.
    """

    value: float
    s2: float
    start: Array
    spread: Array
    innovations: Innovations


def evaluate(rows: Rows, drift: Array, noise: float | None = None) -> Likelihood:
    """Compute the diffuse log likelihood; the noise's variance is its best where None is given.

    The part of the start is a least-squares problem: its factor comes from a QR decomposition of
    the standardised innovations, whose error grows with the condition of X, not with its square.
    """
    n, k = rows.X.shape
    innovations = Innovations(np.empty(n), np.empty((n, k)), np.empty(n), np.empty((n, k)))
    filter_rows(rows, drift, _before_rows(k), (0, n), innovations, _no_history(k))
    usable = np.isfinite(rows.noise)
    variance = innovations.variance[usable]
    both = np.column_stack([innovations.start[usable], innovations.error[usable]])
    factor: Array = np.asarray(np.linalg.qr(both / np.sqrt(variance)[:, None], mode="r"))
    R, z, loss = factor[:k, :k], factor[:k, k], float(factor[k:, k] @ factor[k:, k])
    left = int(usable.sum()) - k
    s2 = loss / left if noise is None else noise
    inverse = _inverse(R)
    with np.errstate(divide="ignore"):
        logs = 2 * np.log(np.abs(np.diagonal(R))).sum() + np.log(variance).sum()
        value = -0.5 * (left * np.log(2 * math.pi * s2) + logs + (loss / s2 if s2 > 0 else left))
    return Likelihood(float(value), s2, inverse @ z, inverse, innovations)


def score(rows: Rows, at: Likelihood) -> Array:
    """Compute the derivatives of the log likelihood by the variances of Q; O(n k^2)."""
    k = len(at.start)
    derivatives = np.zeros(k)
    score_rows(rows, _given_start(at), at.s2, _after_rows(k), derivatives)
    return derivatives


def smooth(rows: Rows, drift: Array, at: Likelihood) -> tuple[Array, Array]:
    """Compute the coefficients (n, k) given all rows, and their variances (n, k) in units of s2.

    Only the states at the start of each block are kept: those of one block are recomputed.
    """
    n, k = rows.X.shape
    given_start, adjoint = _given_start(at), _after_rows(k)
    scratch = Innovations(*(np.empty_like(array) for array in at.innovations))
    state, kept = _before_rows(k), []
    for first in range(0, n, BLOCK):
        kept.append(State(*(array.copy() for array in state)))
        filter_rows(rows, drift, state, (first, min(first + BLOCK, n)), scratch, _no_history(k))
    history = History(np.empty((BLOCK, k)), np.empty((BLOCK, k, k)), np.empty((BLOCK, k, k)))
    smoothed = np.empty((n, k)), np.empty((n, k))
    for block in range(len(kept) - 1, -1, -1):
        span = block * BLOCK, min((block + 1) * BLOCK, n)
        filter_rows(rows, drift, kept[block], span, scratch, history)
        smooth_rows(rows, given_start, history, span, adjoint, (at.start, at.spread), smoothed)
    return smoothed


def _given_start(at: Likelihood) -> Innovations:
    """Return the innovations at the estimated start, with the start's part times ``spread``."""
    error, start, variance, gain = at.innovations
    return Innovations(error - start @ at.start, start @ at.spread, variance, gain)


def _before_rows(k: int) -> State:
    return State(np.zeros(k), np.eye(k), np.zeros((k, k)))


def _after_rows(k: int) -> Adjoint:
    return Adjoint(np.zeros(k), np.zeros((k, k)), np.zeros((k, k)))


def _no_history(k: int) -> History:
    return History(np.empty((0, k)), np.empty((0, k, k)), np.empty((0, k, k)))


def _inverse(R: Array) -> Array:
    from scipy.linalg import solve_triangular

    return solve_triangular(R, np.eye(len(R)))
