"""Moments, solved: coefficients, variances and whitened rows from ``gram`` and ``cross``.

Moments are ``gram = sum w x x^T`` (d, d), here with the ridge, and ``cross = sum w y x^T`` (m, d).
A Cholesky factor answers where every pivot is above rounding; elsewhere the eigenvectors above
rounding span what is known, and coefficients are those of minimum norm, which leaves the intercept
out.  Both classes read like :class:`~olsq.online.forms.square_root.SquareRootForm`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.lapack import (
    inverse_of_triangle,
    solve_moments,
    solve_transposed,
    solve_triangle,
)
from olsq.online.forms.minimum_norm import null_space

_EPS = float(np.finfo(np.float64).eps)


def centred(A: NDArray, G: NDArray, intercept: bool) -> tuple[NDArray, NDArray, NDArray]:
    """Eliminate the intercept, if there is one, from the system ``theta A = G``.

    Returns A (k, k), G (m, k) and the regressors' means (k,), of which there are none (0,) without
    an intercept.
    """
    if not intercept:
        return A, G, np.empty(0)
    mean = A[0, 1:] / A[0, 0]
    return A[1:, 1:] - np.outer(A[0, 1:], mean), G[:, 1:] - np.outer(G[:, 0], mean), mean


@dataclass(eq=False)
class RegularMoments:
    """Moments of full rank: the gram's Cholesky factor R (d, d), and G (m, d)."""

    R: NDArray[np.float64]
    G: NDArray[np.float64]

    @property
    def rank(self) -> int:
        return self.R.shape[0]

    def coefficients(self) -> NDArray:
        """Solve ``theta gram = G`` for theta (m, d)."""
        return solve_moments(self.R, self.G)

    def inverse_diagonal(self) -> NDArray:
        """Return the diagonal (d,) of the inverse."""
        return inverse_of_triangle(self.R)[1]

    def inverse_root(self) -> NDArray:
        """Return B (d, d) with ``B B^T`` the inverse."""
        return inverse_of_triangle(self.R)[0]

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        """Return W (n, d) with ``W W^T = X P X^T``, and that every x is known."""
        return solve_transposed(self.R, X), np.ones(X.shape[0], np.bool_)

    def unwhitened(self, W: NDArray) -> NDArray:
        """Return rows ``P x`` (n, d) for the rows ``whitened(x)``."""
        return solve_triangle(self.R, W)


@dataclass(eq=False)
class SingularMoments:
    """Moments by their eigenvalues in units of unit columns, and what these say is known.

    ``A`` (k, k) is the gram without the intercept, ``values`` (r,) and ``vectors`` (k, r) belong to
    what is known of ``A / scale / scale[:, None]``, ``unknown`` (k, k - r) spans the rest.
    ``mean`` is empty without an intercept, whose diagonal entry is ``total``.  ``coarse`` is the
    rounding error of the data.
    """

    A: NDArray[np.float64]
    G: NDArray[np.float64]
    mean: NDArray[np.float64]
    total: float
    scale: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    unknown: NDArray[np.float64]
    coarse: float

    @classmethod
    def decompose(
        cls,
        gram: NDArray,
        G: NDArray,
        intercept: bool,
        lost: float,
        coarse: float,
        faint: float = 0.0,
    ) -> SingularMoments:
        """Decompose the gram (d, d); known is what is above rounding, ``lost``, and ``faint``."""
        A, _, mean = centred(gram, G, intercept)
        # What centring leaves of a constant column is rounding error.
        whole = np.diagonal(gram)[gram.shape[0] - A.shape[0] :]
        alive = np.diagonal(A) > max(8 * lost, faint) * whole
        scale = np.sqrt(np.where(alive, np.diagonal(A), 1.0))
        values, vectors = np.linalg.eigh(
            np.where(np.outer(alive, alive), A / np.outer(scale, scale), 0.0)
        )
        # Centring leaves the errors of the whole entry, which grow with the unit column.
        errors = 4 * lost * vectors.T**2 @ (np.where(alive, whole, 0.0) / scale**2)
        known = values > np.maximum(max(4 * lost, faint) * values.max(initial=0.0), errors)
        return cls(
            A,
            G,
            mean,
            float(gram[0, 0]),
            scale,
            values[known],
            vectors[:, known],
            vectors[:, ~known],
            coarse,
        )

    @property
    def rank(self) -> int:
        """The number of directions known, the intercept among them."""
        return self.values.size + self._first

    @property
    def _first(self) -> int:
        """The place of the first slope."""
        return int(self.mean.size > 0)

    @property
    def _errors(self) -> NDArray[np.float64]:
        """The rounding errors (k,) of the unknown directions' entries."""
        inflation = (self.vectors**2 / self.values).sum(1)
        return self.coarse * np.sqrt(inflation) + 32 * self.scale.size * _EPS * inflation

    def _particular(self, scaled: NDArray) -> NDArray:
        """Solve for slopes, with the right side (m, k) in units of unit columns."""
        return (scaled @ self.vectors / self.values) @ self.vectors.T / self.scale

    def coefficients(self) -> NDArray:
        """Solve ``theta gram = G`` for theta (m, d) of minimum norm, intercept aside."""
        G, scale = self.G, self.scale
        theta = np.zeros_like(G)
        slopes = G[:, 1:] - np.outer(G[:, 0], self.mean) if self._first else G
        beta = self._particular(slopes / scale)
        # Null directions in the data's own units, so that the norm minimised is the plain one;
        # then one refinement, since mixed units cost digits in the projection.
        null, _ = np.linalg.qr(null_space(self.unknown, self._errors) / scale[:, None])
        beta = beta - (beta @ null) @ null.T
        # In units of unit columns, where nothing overflows.
        beta = beta + self._particular(
            slopes / scale - (beta * scale) @ (self.A / scale[:, None] / scale)
        )
        theta[:, self._first :] = beta
        if self._first:
            theta[:, 0] = G[:, 0] / self.total - beta @ self.mean
        return theta

    def inverse_diagonal(self) -> NDArray:
        """Return the diagonal (d,) of the inverse; inf where undetermined."""
        out = np.empty(self.scale.size + self._first)
        variance = (self.vectors**2 / self.values).sum(1) / self.scale**2
        determined = np.linalg.norm(self.unknown, axis=1) <= np.maximum(1e-4, self._errors)
        out[self._first :] = np.where(determined, variance, np.inf)
        if self._first:  # b = y_mean - x_mean . beta is determined if that combination of beta is
            mean = self.mean / self.scale
            inside = self.vectors.T @ mean
            known = np.linalg.norm(self.vectors @ inside - mean) <= 1e-6 * np.linalg.norm(mean)
            out[0] = 1.0 / self.total + (inside**2 / self.values).sum() if known else np.inf
        return out

    def inverse_root(self) -> NDArray:
        """Return B (k, r) with ``B B^T`` a generalised inverse of the slopes' gram."""
        return self.vectors / np.sqrt(self.values) / self.scale[:, None]

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        """Return W (n, r) with ``W W^T = X P X^T``, and the mask (n,) of x in the known span."""
        parts, errors = [], np.zeros((1, self.scale.size))
        if self._first:  # x . P x = x_0^2 / H_00 + c . A^-1 c with c = x_r - x_0 mean
            parts.append(X[:, :1] / np.sqrt(self.total))
            mean = X[:, :1] * self.mean
            unit = max(8 * X.shape[1] * _EPS, self.coarse)
            errors = unit * (np.abs(X[:, 1:]) + np.abs(mean)) / self.scale
            X = X[:, 1:] - mean
        scaled = X / self.scale
        inside = scaled @ self.vectors
        outside = np.linalg.norm(scaled - inside @ self.vectors.T, axis=1)
        known = outside <= 1e-6 * np.linalg.norm(scaled, axis=1) + np.linalg.norm(errors, axis=1)
        never_seen = ~self.vectors.any(axis=1)  # not a question of size
        known &= ~((np.abs(scaled) > errors) & never_seen).any(axis=1)
        return np.hstack([*parts, inside / np.sqrt(self.values)]), known

    def unwhitened(self, W: NDArray) -> NDArray:
        """Return rows ``P x`` (n, d) for the rows ``whitened(x)``."""
        slopes = (W[:, self._first :] / np.sqrt(self.values)) @ self.vectors.T / self.scale
        if not self._first:
            return slopes
        return np.column_stack([W[:, 0] / np.sqrt(self.total) - slopes @ self.mean, slopes])
