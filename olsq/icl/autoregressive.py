"""Linear attention on first-order autoregressive sequences: data and models.

Every sequence is ``s[t + 1] = W s[t]`` with a matrix W of its own, and the model is to predict
``s[T + 1]`` from the tokens 1 to T.  The matrices of a family commute, so in their common basis
W is ``diag(lam)`` with ``|lam| = 1``.  Either the eigenvalues are independent ("unitary"), or they
come in conjugate pairs ("rotations": real orthogonal matrices seen in their eigenbasis).

Source of the whole module: M. Sander, R. Giryes, T. Suzuki, M. Blondel and G. Peyré, "How do
Transformers perform in-context autoregressive learning?" (ICML 2024).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag, check_integer, check_number, check_sizes
from olsq.arrays.seeds import generator
from olsq.arrays.unshared import unshared
from olsq.icl.autoregressive_optima import numbers

__all__ = [
    "augmented_layer",
    "augmented_tokens",
    "augmented_weights",
    "contexts",
    "non_augmented",
    "real_form",
    "sequences",
]


def contexts(
    n: int,
    seed: np.random.Generator | int,
    *,
    dim: int = 1,
    paired: bool = False,
    mu: float = 1.0,
) -> NDArray[np.complexfloating]:
    """Draw the eigenvalues of n commuting matrices, complex128 (n, dim), all of modulus 1.

    Parameters
    ----------
    n, dim : int
        How many matrices, and of what size.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    paired : bool, default False
        Conjugate pairs ``(lam1, conj lam1, lam2, ...)``, which are rotations; dim is even.
    mu : float, default 1
        The angles are uniform in (0, 2 pi / mu).

    Raises
    ------
    ValueError
        If mu is below 1 or an odd dimension is to be paired.

    Notes
    -----
    Source: assumption 1; section 5.3 for mu.

    Examples
    --------
    >>> from olsq.icl.autoregressive import contexts
    >>> lam = contexts(2, 0, dim=4, paired=True)
    >>> lam.shape, bool((lam[:, 0] == lam[:, 1].conj()).all())
    ((2, 4), True)
    """
    check_integer("n", n, 0, bits=31)
    check_integer("dim", dim, 1, bits=31)
    check_number("mu", mu, least=1.0)
    if check_flag("paired", paired) and dim % 2:
        raise ValueError(f"dim must be even to pair eigenvalues, got {dim}")
    rng = generator(seed)
    turns = rng.uniform(0.0, 2.0 * np.pi / mu, size=(n, dim // 2 if paired else dim))
    lam = np.exp(1j * turns)
    return np.stack([lam, lam.conj()], -1).reshape(n, dim) if paired else lam


def sequences(contexts: ArrayLike, length: int) -> NDArray[np.complexfloating]:
    """Return the states ``s[1] = 1`` to ``s[length + 1]``: powers, complex128 (n, length + 1, d).

    The last state is the answer to the question that the others ask.

    Examples
    --------
    >>> from olsq.icl.autoregressive import sequences
    >>> sequences([[1j, -1]], 2)[0].tolist() == [[1, 1], [1j, -1], [-1, 1]]
    True
    """
    check_integer("length", length, 0, bits=31)
    lam = np.asarray(contexts, dtype=np.complex128)[:, None, :]
    first = np.ones_like(lam)
    return np.cumprod(np.concatenate([first, np.repeat(lam, length, axis=1)], 1), axis=1)


def real_form(unitary: ArrayLike) -> NDArray[np.float64]:
    """Return the rotation of R^2d that a unitary matrix is (remark 1), float64 (..., 2d, 2d).

    It maps (Re x, Im x) to (Re W x, Im W x); its eigenvalues are those of W and their conjugates.

    Examples
    --------
    >>> from olsq.icl.autoregressive import real_form
    >>> real_form([[1j]]).tolist() == [[0, -1], [1, 0]]  # a quarter turn
    True
    """
    w = np.asarray(unitary, dtype=np.complex128)
    return np.block([[w.real, -w.imag], [w.imag, w.real]])


def augmented_tokens(states: ArrayLike, before: ArrayLike | None = None) -> jax.Array:
    """Return the tokens ``(0, s[t], s[t - 1])``, (..., T, 3d).

    Parameters
    ----------
    states : array (..., T, d)
        ``s[1]`` to ``s[T]``.
    before : array (..., d), optional
        ``s[0]``: the paper's proofs take ``W^-1 s[1]``, its code zeros (the default).

    Examples
    --------
    >>> from olsq.icl.autoregressive import augmented_tokens
    >>> augmented_tokens([[1.0], [2.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 2.0, 1.0]]
    """
    s = jnp.asarray(unshared(states))
    first = (
        jnp.zeros_like(s[..., 0, :]) if before is None else jnp.asarray(unshared(before), s.dtype)
    )
    previous = jnp.concatenate([first[..., None, :], s[..., :-1, :]], axis=-2)
    return jnp.concatenate([jnp.zeros_like(s), s, previous], axis=-1)


def augmented_layer(tokens: ArrayLike, a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Apply one head of causal linear attention with a skip connection (eq. 4), (..., T, 3d).

    ``out[T] = e[T] + sum over t <= T of <A e[T], e[t]> B e[t]`` where ``<x, y> = y* x``.  The
    first d coordinates of the result at T are the prediction of ``s[T + 1]``.

    Parameters
    ----------
    tokens : array (..., T, 3d)
        Of `augmented_tokens`, or the output of a layer before.
    a, b : array (3d, 3d)
        ``A = W_K^T W_Q`` and ``B = W_O W_V``.

    Examples
    --------
    >>> from olsq.icl.autoregressive import augmented_layer, augmented_tokens, augmented_weights
    >>> a, b = augmented_weights([0, 0, 1, 0], [0.1, 0], 1)  # one gradient step of size 0.1
    >>> out = augmented_layer(augmented_tokens([[1.0], [2.0], [4.0]]), a, b)
    >>> [round(float(x), 6) for x in out[:, 0]]  # 0.1 * (2 * 1 + 4 * 2) * 4 at the end
    [0.0, 0.4, 4.0]
    """
    e, a, b = (jnp.asarray(unshared(x)) for x in (tokens, a, b))
    square = (e.shape[-1], e.shape[-1])
    if a.shape != square or b.shape != square:
        raise ValueError(f"a and b must have shape {square}, got {a.shape} and {b.shape}")
    scores = jnp.einsum("...ti,...ui->...ut", e.conj(), e @ a.T)
    return e + jnp.tril(scores) @ (e @ b.T)


def augmented_weights(a: ArrayLike, b: ArrayLike, dim: int) -> tuple[jax.Array, jax.Array]:
    """Return A and B, (3d, 3d), from the scalars of their blocks (assumption 2).

    Parameters
    ----------
    a : array (4,)
        ``A = [[0, 0, 0], [0, a1, a2], [0, a3, a4]]``, each times the identity.
    b : array (2,)
        ``B = [[0, b1, b2], [0, 0, 0], [0, 0, 0]]``.
    dim : int
        d.

    Notes
    -----
    ``a = (0, 0, 1, 0), b = (step, 0)`` is one step of gradient descent from zero on
    ``sum of |s[t + 1] - W s[t]|^2 / 2`` (proposition 1, eq. 8); the best step is
    `olsq.icl.autoregressive_optima.best_step`'s.

    Examples
    --------
    >>> from olsq.icl.autoregressive import augmented_weights
    >>> augmented_weights([1, 2, 3, 4], [5, 6], 1)[0].tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 4.0]]
    """
    check_sizes(dim=dim)
    a, b = numbers("a", a, (4,)), numbers("b", b, (2,))
    small_a = jnp.zeros((3, 3), a.dtype).at[1:, 1:].set(a.reshape(2, 2))
    small_b = jnp.zeros((3, 3), b.dtype).at[0, 1:].set(b)
    return jnp.kron(small_a, jnp.eye(dim)), jnp.kron(small_b, jnp.eye(dim))


def non_augmented(tokens: ArrayLike, a: ArrayLike, b: ArrayLike, p: ArrayLike) -> jax.Array:
    """Apply multi-head linear attention to bare tokens, with a positional encoding (eq. 6).

    ``out[T] = sum over h and t <= T of P[T - 1, t] <e[t], A_h e[T - 1]> B_h e[t]`` where
    ``<x, y> = y* x``: the query is the last token but one.

    Parameters
    ----------
    tokens : array (..., L, d)
        ``e[1]`` to ``e[L]``.
    a, b : array (H, d, d) or (H, d)
        ``A_h`` and ``B_h``, or their diagonals.
    p : array (L - 1, L)
        Row T - 2 holds ``P[T - 1, :]``; what lies beyond the token T is not read.

    Returns
    -------
    array (..., L - 1, d)
        The predictions of ``s[T + 1]`` for T = 2 to L.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl.autoregressive import contexts, non_augmented, sequences
    >>> from olsq.icl.autoregressive_optima import unitary_optimum
    >>> s = sequences(contexts(5, 0, dim=3), 7)
    >>> out = non_augmented(s[:, :-1], *unitary_optimum(3, 7))
    >>> bool(np.allclose(out, s[:, 2:], atol=1e-5))
    True
    """
    e = jnp.asarray(unshared(tokens))
    heads_a, heads_b = (_matrices(jnp.asarray(unshared(x))) for x in (a, b))
    p = jnp.asarray(unshared(p))
    length, dim = e.shape[-2:]
    if heads_a.shape != heads_b.shape or heads_a.shape[1:] != (dim, dim):
        raise ValueError(
            f"a and b must have shape (H, {dim}) or (H, {dim}, {dim}) with the same H, "
            f"got {np.shape(a)} and {np.shape(b)}"
        )
    if p.shape != (length - 1, length):
        raise ValueError(f"p must have shape {(length - 1, length)}, got {p.shape}")
    p = jnp.tril(p, 1)
    queries = jnp.einsum("hij,...tj->...hti", heads_a, e[..., :-1, :])
    scores = p * jnp.einsum("...ti,...hui->...hut", e, queries.conj())
    return jnp.einsum("hij,...hut,...tj->...ui", heads_b, scores, e)


def _matrices(x: jax.Array) -> jax.Array:
    return jax.vmap(jnp.diag)(x) if x.ndim == 2 else x
