"""Exact population losses of the models of `olsq.icl.autoregressive`, without any data.

A prediction is a polynomial in the eigenvalues, which are uniform on the unit circle; its mean
squared error is the sum of the squares of the coefficients of its error.  So every loss here is
found by collecting the terms that are the same monomial.

Source: M. Sander et al., "How do Transformers perform in-context autoregressive learning?" (ICML
2024), propositions 2, 3, 4, 6, 7 and 8.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag, check_integer, check_number
from olsq.icl.autoregressive_optima import inverse_start, numbers
from olsq.icl.weights import shaped

__all__ = [
    "augmented_loss",
    "conditioning_matrix",
    "heads_bound",
    "non_augmented_loss",
    "position_gradient",
    "position_loss",
    "row_loss",
]


def augmented_loss(
    a: ArrayLike, b: ArrayLike, *, dim: int, length: int, before: str = "inverse"
) -> jax.Array:
    """Compute the augmented model's loss for independent eigenvalues, summed over T = 2 to L (lemma
    4).

    Parameters
    ----------
    a : array (4,)
        The scalars of the blocks of A, as `augmented_weights` takes them.
    b : array (2,)
        Those of B.
    dim, length : int
        d and L.
    before : {"inverse", "zero"}
        What the first token carries as ``s[0]``; see `best_step`.

    Returns
    -------
    array ()
        Differentiable in a and b.

    Notes
    -----
    The loss is quadratic in the products ``a_k b_l``.  The product ``a3 b1`` alone makes monomials
    of the degree of ``s[T + 1]``, so no other product can help, for either convention
    (proposition 8).  The quadratic form is counted once for each dim, length and convention, in
    time ``O(length^2)``.

    Examples
    --------
    >>> from olsq.icl.autoregressive_losses import augmented_loss
    >>> from olsq.icl.autoregressive_optima import best_step
    >>> step = best_step(50, 5)
    >>> loss = [augmented_loss([0, 0, x, 0], [1, 0], dim=5, length=50) for x in (0, step)]
    >>> [round(float(x), 2) for x in loss]
    [245.0, 76.0]
    """
    check_integer("dim", dim, 1, bits=31)
    check_integer("length", length, 1, bits=31)
    square, linear = _augmented_form(dim, length, inverse_start(before))
    c = jnp.outer(numbers("a", a, (4,)), numbers("b", b, (2,))).ravel()
    return dim * (c @ jnp.asarray(square) @ c - 2.0 * c @ jnp.asarray(linear) + (length - 1))


@lru_cache(maxsize=64)
def _augmented_form(dim: int, length: int, inverse: bool) -> tuple[NDArray, NDArray]:
    """Compute the quadratic form of `augmented_loss` in the eight products, for one coordinate."""
    square, linear = np.zeros((8, 8)), np.zeros(8)
    for last in range(2, length + 1):
        # Coordinate i of the output is a sum over j of monomials lam_j^m lam_i^n.  Those with
        # j != i and m != 0 are all distinct; with m = 0 or j = i they are powers of lam_i.
        distinct: dict = defaultdict(lambda: np.zeros(8))
        powers: dict = defaultdict(lambda: np.zeros(8))
        for t in range(1, last + 1):
            for k in range(4):
                for value in range(2):
                    key, query = t - k // 2, last - k % 2  # a1: t, T; a2: t, T - 1; a3: t - 1, T
                    if not inverse and min(key, t - value) < 1:
                        continue
                    m, n = query - key, t - value - 1
                    powers[m + n][2 * k + value] += 1.0
                    place = distinct[m, n] if m else powers[n]
                    place[2 * k + value] += dim - 1.0 if m == 0 else 1.0
        for row in distinct.values():
            square += (dim - 1.0) * np.outer(row, row)
        for row in powers.values():
            square += np.outer(row, row)
        linear += powers[last]
    return square, linear


def row_loss(c: ArrayLike, p: ArrayLike, *, rotations: bool = False) -> jax.Array:
    """Compute the non-augmented model's loss with diagonal heads at one length T (proposition 4).

    Parameters
    ----------
    c : array (d, d)
        ``C = B^T A``, where A and B have a head per row.
    p : array (..., T)
        The positional encoding ``P[T - 1, 1:T]``; T is at least 2.
    rotations : bool, default False
        Eigenvalues in conjugate pairs instead of independent ones.

    Returns
    -------
    array (...)

    Notes
    -----
    Divided by ``lam_i^(T - 2)``, coordinate i of the output is the sum over j and
    ``u = t - T + 1`` of ``p_t C_ij (lam_j lam_i)^u``, and that of the answer ``lam_i^2``.
    Independent eigenvalues make all monomials with u != 0 distinct, so that::

        loss = (|p|^2 - p[T-1]^2) |C|^2 + p[T-1]^2 sum(C^T C) - 2 trace(C) p[T] + d.

    The first factor is printed as ``|p|^2``, which counts the terms with u = 0 twice; both have
    the same minimisers.  For rotations, the partner j of i has ``lam_j lam_i = 1``, and with r_i
    the sum of row i, x_i its entry at the partner and q the sum of p except ``p[T-1]``::

        loss = sum over i of (p[T-1] r_i + q x_i)^2
               + (|p|^2 - p[T-1]^2) (|C|^2 - |x|^2) - 2 trace(C) p[T] + d.

    This one also goes to zero at infinity, as ``p[T]`` falls and C grows with blocks close to
    ``[[1, -1], [-1, 1]] / p[T]``: gradient descent may follow that valley without end.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl.autoregressive_losses import row_loss
    >>> float(row_loss(np.eye(3), [0, 0, 0, 2, 1])), float(row_loss(np.eye(3), [0, 0, 0, 0, 1]))
    (12.0, 0.0)
    >>> float(row_loss(np.full((2, 2), 0.5), [0, 0, 0, -1, 2], rotations=True))
    0.0
    """
    c = numbers("c", c, ("d", "d"))
    p = shaped("p", p, ("T",)).astype(float)
    if c.shape[0] != c.shape[1] or p.shape[-1] < 2:
        raise ValueError(
            f"c must be square and p have at least two tokens, got {c.shape} and {p.shape}"
        )
    middle, last = p[..., -2], p[..., -1]
    return _row_loss(c, (p**2).sum(-1), p.sum(-1), middle, last, rotations)


def non_augmented_loss(
    a: ArrayLike, b: ArrayLike, p: ArrayLike, *, rotations: bool = False
) -> jax.Array:
    """Compute the non-augmented model's loss with diagonal heads, summed over T = 2 to L.

    Parameters
    ----------
    a, b : array (H, d)
        Diagonals of the heads.
    p : array (L - 1, L)
        Positional encoding; what lies beyond the token T is not read.
    rotations : bool, default False
        Eigenvalues in conjugate pairs instead of independent ones.

    Returns
    -------
    array ()
        The sum of `row_loss`; differentiable.

    Examples
    --------
    >>> from olsq.icl.autoregressive_losses import non_augmented_loss
    >>> from olsq.icl.autoregressive_optima import rotation_optimum, unitary_optimum
    >>> float(non_augmented_loss(*unitary_optimum(4, 9)))
    0.0
    >>> float(non_augmented_loss(*rotation_optimum(4, 9), rotations=True))
    0.0
    """
    a = numbers("a", a, ("H", "d"))
    c = numbers("b", b, a.shape).T @ a
    p = _positions(p)
    middle, last = jnp.diagonal(p), jnp.diagonal(p, 1)
    return _row_loss(c, (p**2).sum(-1), p.sum(-1), middle, last, rotations).sum()


def _row_loss(
    c: jax.Array,
    squares: jax.Array,
    total: jax.Array,
    middle: jax.Array,
    last: jax.Array,
    rotations: bool,
) -> jax.Array:
    dim = c.shape[0]
    if check_flag("rotations", rotations) and dim % 2:
        raise ValueError(f"d must be even for rotations, got {dim}")
    rows, other_squares, size = c.sum(-1), squares - middle**2, (c**2).sum()
    if rotations:
        partner = c[jnp.arange(dim), jnp.arange(dim) ^ 1]
        constant = middle[..., None] * rows + (total - middle)[..., None] * partner
        size = size - (partner**2).sum()
    else:
        constant = middle[..., None] * rows
    return (constant**2).sum(-1) + other_squares * size - 2.0 * jnp.trace(c) * last + dim


def heads_bound(dim: int, heads: int, length: int) -> float:
    """Return a lower bound of the loss for independent eigenvalues: ``(L - 1) (d - H)``.

    The loss at T is at least ``|P[T-1, T] B^T A - I|^2``, and a matrix of rank H is at least
    ``d - H`` from the identity.  It is the infimum: proposition 3's weights without d - H of the
    heads attain it.

    Examples
    --------
    >>> from olsq.icl.autoregressive_losses import heads_bound, non_augmented_loss
    >>> from olsq.icl.autoregressive_optima import unitary_optimum
    >>> a, b, p = unitary_optimum(5, 8)
    >>> heads_bound(5, 3, 8), float(non_augmented_loss(a[:3], b[:3], p))
    (14.0, 14.0)
    """
    for name, size in (("dim", dim), ("heads", heads), ("length", length)):
        check_integer(name, size, 1, bits=31)
    return float((length - 1) * max(dim - heads, 0))


def conditioning_matrix(length: int, mu: float) -> NDArray[np.float64]:
    """Return proposition 7's matrix, float64 (T, T): half the Hessian of the loss (7).

    ``H[t, t'] = mu / (4 pi (t' - t)) sin(4 pi (t' - t) / mu)``, and 1 on the diagonal: the mean of
    ``lam^(2 (t' - t))``, real part, for angles uniform in (0, 2 pi / mu).  The paper calls it the
    Hessian.  As mu grows its largest eigenvalue goes to T and the others to 0.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl.autoregressive_losses import conditioning_matrix
    >>> np.linalg.eigvalsh(conditioning_matrix(30, 300.0))[::-1][:3].round(2).tolist()
    [28.74, 1.25, 0.01]
    """
    check_integer("length", length, 0, bits=31)
    check_number("mu", mu, above=0)
    lags = np.subtract.outer(np.arange(length), np.arange(length))
    with np.errstate(over="ignore"):
        return np.sinc(np.clip(4.0 * lags / mu, -1e300, 1e300))


def position_loss(p: ArrayLike, mu: float) -> jax.Array:
    """Compute the loss of the model with only a positional encoding (eq. 7), averaged over T = 2 to
    L.

    At each T it is ``(p - e_T)^T H (p - e_T)`` with H of `conditioning_matrix`: ``lam^T``, the next
    state, is what the token T alone would predict.

    Parameters
    ----------
    p : array (L - 1, L)
        Positional encoding; what lies beyond the token T is not read.
    mu : float
        The angles of the eigenvalues are uniform in (0, 2 pi / mu).

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl.autoregressive_losses import position_loss
    >>> float(position_loss(np.zeros((29, 30)), 50.0)), float(position_loss(np.eye(2, 3, 1), 9.0))
    (1.0, 0.0)
    """
    error = _position_error(p)
    return ((error @ conditioning_matrix(error.shape[-1], mu)) * error).sum(-1).mean()


def position_gradient(p: ArrayLike, mu: float) -> jax.Array:
    """Compute the gradient of `position_loss`: ``2 / (L - 1) H (p - e_T)`` per row, 0 beyond the
    token T.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl.autoregressive_losses import position_gradient
    >>> [round(float(x), 3) for x in position_gradient(np.zeros((1, 2)), 8.0)[0]]
    [-1.273, -2.0]
    """
    error = _position_error(p)
    rows, length = error.shape
    return jnp.tril(2.0 / rows * error @ conditioning_matrix(length, mu), 1)


def _position_error(p: ArrayLike) -> jax.Array:
    weights = _positions(p)
    return weights - jnp.eye(len(weights), weights.shape[1], 1, dtype=weights.dtype)


def _positions(p: ArrayLike) -> jax.Array:
    """Return a positional encoding (L - 1, L) with 0 beyond the token T of each row."""
    p = numbers("p", p, ("L - 1", "L"))
    if p.shape[0] != p.shape[1] - 1:
        raise ValueError(f"p must have shape (L - 1, L), got {p.shape}")
    return jnp.tril(p, 1)
