"""Linear probes: regressions that decode a target from a layer's activations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flag, check_number
from olsq.icl.dynamics import previous
from olsq.icl.weights import floating, shaped


class Probe(NamedTuple):
    """A regression from activations to a target, with its errors on new sequences.

    Attributes
    ----------
    coef : array (m, D), or (T, m, D) for a probe at every token
    intercept : array (m,), or (T, m)
    train_error, test_error : array (T,)
        Half the squared error, summed over entries and averaged over sequences.
    explained : array ()
        Share of the test targets' variance about the training targets' mean that is decoded.
    """

    coef: Any
    intercept: Any
    train_error: Any
    test_error: Any
    explained: Any

    __repr__ = brief_repr

    def __call__(self, activations: Any) -> Array:
        """Decode activations (..., T, D) to (..., T, m)."""
        return jnp.einsum("...md,...d->...m", self.coef, floating(activations)) + self.intercept


def linear_probe(
    activations: Any,
    targets: Any,
    *,
    ridge: float = 0.0,
    train: float = 0.5,
    each_token: bool = True,
) -> Probe:
    """Regress targets on activations on some sequences, and test it on the others.

    Parameters
    ----------
    activations : array (n, T, D)
        Of one layer.
    targets : array (n, T, m)
        What to look for: the next state, :func:`inverse_targets`, or anything else.
    ridge : float
        Added to the second moments of the activations *per sample*, intercept left out.
    train : float
        Share of the n sequences, from the first on, that is fitted; the rest is the test.
    each_token : bool
        A probe of its own for every token, as in the papers, or one for all.

    Returns
    -------
    Probe

    Raises
    ------
    ValueError
        If shapes do not fit, the ridge is negative, or a part of the split is empty.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023),
    figure 3.3 of the thesis.  The paper's code fits and tests on the same sequences; a probe here
    is judged on sequences that it has not seen.

    Where activations are collinear and the ridge is 0 the coefficients are the smallest that fit.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl import linear_probe
    >>> x = np.random.default_rng(0).normal(size=(20, 3, 2))
    >>> probe = linear_probe(x, 2 * x[..., :1])
    >>> round(float(probe.explained), 3)
    1.0
    """
    x = floating(activations)
    if x.ndim != 3:
        raise ValueError(f"activations must have shape (n, T, D), got {x.shape}")
    n, t, _ = x.shape
    y = floating(targets)
    if y.ndim != 3 or y.shape[:2] != (n, t):
        raise ValueError(f"targets must have shape ({n}, {t}, m), got {y.shape}")
    ridge = check_number("ridge", ridge, least=0)
    check_number("train", train)
    cut = round(train * n) if 0 < train < 1 else 0
    if not 0 < cut < n:
        raise ValueError(f"train must leave sequences on both sides of the split, got {train}")

    if check_flag("each_token", each_token):
        coef, intercept = jax.vmap(_fit, in_axes=(1, 1, None))(x[:cut], y[:cut], ridge)
    else:
        flat = (part[:cut].reshape(-1, part.shape[-1]) for part in (x, y))
        coef, intercept = _fit(*flat, ridge)
    square = (jnp.einsum("...md,n...d->n...m", coef, x) + intercept - y) ** 2
    error = square.sum(-1) / 2
    spread = ((y[cut:] - y[:cut].mean(0)) ** 2).sum()
    explained = 1 - square[cut:].sum() / spread
    return Probe(coef, intercept, error[:cut].mean(0), error[cut:].mean(0), explained)


def inverse_targets(states: Any, *, ridge: Any) -> Array:
    """Compute the preconditioned inputs ``(S_{t-1} S_{t-1}^T + ridge I)^{-1} s_t``, for every t.

    Parameters
    ----------
    states : array (..., T, d)
        The columns of S_{t-1} are s_1 to s_{t-1}.
    ridge : float
        The thesis' ``1 / lambda``, > 0; 0.001 in its code.

    Returns
    -------
    array (..., T, d)

    Raises
    ------
    ValueError
        If shapes do not fit, or the ridge is no number > 0.

    Notes
    -----
    Source: the thesis' section 3.5.1, the target of the "inverse probe".  Use float64: with fewer
    than d states the condition number is their sum of squares over the ridge.

    Examples
    --------
    >>> from olsq.icl import inverse_targets
    >>> inverse_targets([[1.0], [1.0]], ridge=1.0)[:, 0]
    Array([1. , 0.5], dtype=float32)
    """
    ridge = check_number("ridge", ridge, above=0)
    states = shaped("states", states, ("T", "d"))
    before = previous(states)
    gram = jnp.cumsum(before[..., :, None] * before[..., None, :], -3)
    system = gram + ridge * jnp.eye(states.shape[-1], dtype=states.dtype)
    return jnp.linalg.solve(system, states[..., None])[..., 0]


def implicit_predictions(states: Any, decoded: Any) -> Array:
    """Predict the next states, ``S_t S_{t-1}^T z_t``, from decoded preconditioned inputs z_t.

    Parameters
    ----------
    states : array (..., T, d)
    decoded : array (..., T, d)
        z_t: what a probe for :func:`inverse_targets` gives.  From those targets themselves this
        is ridge regression; from ``rate * states``, one step of gradient descent.

    Returns
    -------
    array (..., T, d)

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: the thesis' figure 3.13, the "implicit target" probe, up to its factor eta.

    Examples
    --------
    >>> from olsq.icl import implicit_predictions
    >>> implicit_predictions([[1.0], [2.0]], [[1.0], [0.5]])[:, 0]
    Array([0., 1.], dtype=float32)
    """
    states = shaped("states", states, ("T", "d"))
    decoded = shaped("decoded", decoded, states.shape[-2:])
    scores = jnp.tril(jnp.einsum("...td,...id->...ti", decoded, previous(states)))
    return jnp.einsum("...ti,...id->...td", scores, states)


@jax.jit
def _fit(x: Array, y: Array, ridge: Any) -> tuple[Array, Array]:
    """Fit a ridge regression of y (n, m) on x (n, D), with the intercept not shrunk."""
    x_mean, y_mean = x.mean(0), y.mean(0)
    rows = jnp.sqrt(ridge * len(x)) * jnp.eye(x.shape[-1], dtype=x.dtype)
    left = jnp.concatenate([x - x_mean, rows])
    right = jnp.concatenate([y - y_mean, jnp.zeros((len(rows), y.shape[-1]), y.dtype)])
    coef = jnp.linalg.lstsq(left, right)[0].T
    return coef, y_mean - coef @ x_mean
