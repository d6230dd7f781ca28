"""Sequences for in-context learning: linear dynamics and few-shot linear regression."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers, check_reals

__all__ = [
    "FewShot",
    "LinearDynamics",
    "few_shot_regression",
    "interleave",
    "linear_dynamics",
    "random_orthogonal",
]


class LinearDynamics(NamedTuple):
    """A batch of n sequences of T observations in p dimensions, of states in d; all float64.

    Attributes
    ----------
    inputs : array (n, T, p)
        Observations 1 to T.
    labels : array (n, T, p)
        Observations 2 to T + 1.
    hidden : array (n, T + 1, d)
        The states behind the observations.
    transition : array (n, d, d)
        The orthogonal matrix of each sequence.
    observation : array (n, p, d)
        The observation matrix of each sequence; the identity when fully observed.

    Examples
    --------
    >>> from olsq.tasks.dynamics import linear_dynamics
    >>> data = linear_dynamics(3, 0, length=20, dim=8, observed=5)
    >>> data.inputs.shape, data.hidden.shape
    ((3, 20, 5), (3, 21, 8))
    """

    inputs: NDArray
    labels: NDArray
    hidden: NDArray
    transition: NDArray
    observation: NDArray

    __repr__ = brief_repr


class FewShot(NamedTuple):
    """A batch of n regression tasks with N pairs, d regressors and m targets; all float64.

    Attributes
    ----------
    x : array (n, N, d)
        Regressors; the last row is usually the query.
    y : array (n, N, m)
        Targets.
    weights : array (n, m, d)
        The coefficients of each task.

    Examples
    --------
    >>> from olsq.tasks.dynamics import few_shot_regression
    >>> data = few_shot_regression(3, 0)
    >>> data.x.shape, data.y.shape, data.weights.shape
    ((3, 11, 10), (3, 11, 1), (3, 1, 10))
    """

    x: NDArray
    y: NDArray
    weights: NDArray

    __repr__ = brief_repr


def random_orthogonal(n: int, dim: int, seed: np.random.Generator | int) -> NDArray:
    """Draw n orthogonal matrices uniformly (by Haar measure), float64 (n, dim, dim).

    Parameters
    ----------
    n, dim : int
        How many, and of what size.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: F. Mezzadri, "How to generate random matrices from the classical compact groups"
    (2007): the Q of a Gaussian matrix is uniform once R has a positive diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.tasks.dynamics import random_orthogonal
    >>> (w,) = random_orthogonal(1, 3, 0)
    >>> bool(np.allclose(w @ w.T, np.eye(3)))
    True
    """
    check_integers(n=(n, 0), dim=(dim, 1))
    rng = generator(seed)
    q, r = np.linalg.qr(rng.normal(size=(n, dim, dim)))
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    return q * np.where(diagonal < 0.0, -1.0, 1.0)[:, None, :]


def linear_dynamics(
    n: int,
    seed: np.random.Generator | int,
    *,
    length: int = 50,
    dim: int = 10,
    observed: int | None = None,
    noise: float = 0.01,
    observation_noise: float = 0.0,
    start: float = 1.0,
) -> LinearDynamics:
    """Draw sequences of ``h[t+1] = W h[t] + noise``, each with an orthogonal W of its own.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    length : int, default 50
        Inputs T, at least 1.
    dim : int, default 10
        Dimension d of the state, at least 1.
    observed : int, optional
        Observe ``C h[t]`` in this many dimensions p, with C drawn for each sequence from
        N(0, 1/4).  Default: the state itself is seen.
    noise : float, default 0.01
        Standard deviation of the noise in the dynamics.
    observation_noise : float, default 0
        Standard deviation of the noise in the observations.
    start : float, default 1
        The first state is uniform in (-start, start).

    Returns
    -------
    LinearDynamics

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023),
    with the values of its code.  The text draws the first state from N(0, I); the published
    losses need the uniform one.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.tasks.dynamics import linear_dynamics
    >>> data = linear_dynamics(4, 0, noise=0.0)
    >>> bool(np.allclose(data.labels[:, 0], (data.transition @ data.inputs[:, 0, :, None])[..., 0]))
    True
    """
    check_integers(n=(n, 0), length=(length, 1), dim=(dim, 1))
    if observed is not None:
        check_integers(observed=(observed, 1))
    check_reals(noise=(noise, 0.0), observation_noise=(observation_noise, 0.0), start=(start, 0.0))
    rng = generator(seed)
    transition = random_orthogonal(n, dim, rng)
    hidden = noise * rng.normal(size=(n, length + 1, dim))
    hidden[:, 0] = rng.uniform(-start, start, size=(n, dim))
    for t in range(length):
        hidden[:, t + 1] += np.einsum("nij,nj->ni", transition, hidden[:, t])
    if observed is None:
        observation = np.tile(np.eye(dim), (n, 1, 1))
        observations = hidden.copy()
    else:
        observation = 0.5 * rng.normal(size=(n, observed, dim))
        observations = hidden @ observation.swapaxes(-1, -2)
    if observation_noise > 0.0:
        observations += observation_noise * rng.normal(size=observations.shape)
    return LinearDynamics(
        observations[:, :-1], observations[:, 1:], hidden, transition, observation
    )


def few_shot_regression(
    n: int,
    seed: np.random.Generator | int,
    *,
    pairs: int = 11,
    dim: int = 10,
    targets: int | None = 1,
    inputs: str = "uniform",
    scale: float | None = None,
    noise: float = 0.0,
) -> FewShot:
    """Draw regression tasks ``y = W x + noise``.

    The defaults are the ten pairs and the query of von Oswald et al. (2023a); the tasks for a model
    of linear dynamics in von Oswald et al. (2023b) have ``targets=None, inputs="normal"``.

    Parameters
    ----------
    n : int
        Number of tasks.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    pairs : int, default 11
        Pairs N in a task, the query included, at least 1.
    dim : int, default 10
        Regressors d, at least 1.
    targets : int or None, default 1
        Targets m, with coefficients from N(0, 1); None draws an orthogonal W, with m = d.
    inputs : {"uniform", "normal"}
        Distribution of the regressors.
    scale : float, optional
        Half the width of the uniform distribution (default 0.5) or the standard deviation of the
        normal one (default 1).
    noise : float, default 0
        Standard deviation of the noise in the targets.

    Returns
    -------
    FewShot

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Sources: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023a), and
    "Uncovering mesa-optimization algorithms in Transformers" (2023b).  The text of the first has
    regressors in (-1, 1); its code, and so all its numbers, has (-1/2, 1/2).

    Examples
    --------
    >>> from olsq.tasks.dynamics import few_shot_regression
    >>> data = few_shot_regression(100, 0)
    >>> float(abs(data.x).max()) <= 0.5
    True
    """
    check_integers(n=(n, 0), pairs=(pairs, 1), dim=(dim, 1))
    if targets is not None:
        check_integers(targets=(targets, 1))
    check_reals(noise=(noise, 0.0))
    if scale is not None:
        check_reals(scale=(scale, 0.0))
    if inputs not in ("uniform", "normal"):
        raise ValueError(f'inputs must be "uniform" or "normal", got {inputs!r}')
    rng = generator(seed)
    if targets is None:
        weights = random_orthogonal(n, dim, rng)
    else:
        weights = rng.normal(size=(n, targets, dim))
    if inputs == "uniform":
        scale = 0.5 if scale is None else float(scale)  # -scale of an unsigned integer wraps
        x = rng.uniform(-scale, scale, size=(n, pairs, dim))
    else:
        x = (1.0 if scale is None else scale) * rng.normal(size=(n, pairs, dim))
    y = x @ weights.swapaxes(-1, -2)
    if noise > 0.0:
        y += noise * rng.normal(size=y.shape)
    return FewShot(x, y, weights)


def interleave(data: FewShot, *, separator: ArrayLike | None = None) -> NDArray:
    """Return the pairs of each task as one token sequence (x1, y1, x2, y2), float64 (n, 2 N, d).

    Parameters
    ----------
    data : FewShot
        Tasks with as many targets as regressors.
    separator : array (d,), optional
        A token to put after each pair, which makes 3 N tokens.  It keeps apart the pairs (y1, x2),
        which say nothing and which a model of linear dynamics reads too.

    Returns
    -------
    array (n, 2 N, d) or (n, 3 N, d)

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> from olsq.tasks.dynamics import few_shot_regression, interleave
    >>> data = few_shot_regression(2, 0, pairs=5, dim=3, targets=None, inputs="normal")
    >>> interleave(data).shape, interleave(data, separator=[0, 0, 0]).shape
    ((2, 10, 3), (2, 15, 3))
    """
    n, pairs, dim = data.x.shape
    if data.y.shape != data.x.shape:
        raise ValueError(f"x {data.x.shape} and y {data.y.shape} must have the same shape")
    tokens = [data.x, data.y]
    if separator is not None:
        separator = np.asarray(separator, dtype=np.float64)
        if separator.shape != (dim,):
            raise ValueError(f"separator must have shape ({dim},), got {separator.shape}")
        tokens.append(np.broadcast_to(separator, data.x.shape))
    return np.stack(tokens, axis=2).reshape(n, len(tokens) * pairs, dim)
