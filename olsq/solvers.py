"""The solvers of whole sequences: what each one is, which problems it solves, what it promises.

A solver is a frozen description.  Making one imports no backend: :meth:`Solver.numpy` and
:meth:`Solver.jax` do, and return the form that computes.  Both forms of a solver take the same
steps; ``olsq.reference`` holds the loops that say which.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver

FLOOR = -80.0  # log of the smallest gate a reference sees; smaller ones only precondition
MAX_LOG_SCALE = 3.5  # |log f| up to which a token uses its factor; beyond, plain CG is as good
MILD_LOG_SCALE = 0.7  # |log f| up to which one reference and Chebyshev steps serve a whole stream
REGULAR = 10.0  # growth up to which P is exact to rounding; beyond, it preconditions
ROUNDED = 25.0  # eps of the default tolerance: 3e-6 in float32, 6e-15 in float64
# Corrections beyond which conjugate gradient (or, in NumPy's kernels, one factorisation a token)
# takes over.  A correction is one apply: measured, a quarter of a step of conjugate gradient, which
# needs about as many (float64, d 64, gates .98: 18 corrections in 0.37 of the time of 19 steps).
MOST_CORRECTIONS = 40
TOO_FEW = 0.01  # part of the answer that fixed corrections may miss without a warning


def correction_error(kappa: Any, steps: Any) -> Any:
    """What ``steps`` Chebyshev steps leave of the answer, on a spectrum of condition ``kappa``.

    A step shrinks the error by ``rho = (sqrt(kappa) - 1) / (sqrt(kappa) + 1)``: in the norm of
    ``P^{-1}`` it is ``2 rho^(steps + 1)``, in any between that and the one of M ``kappa`` times as
    much.  Arithmetic only: NumPy's kernels and JAX's tracers use it too.
    """
    return 2 * kappa * ((kappa**0.5 - 1) / (kappa**0.5 + 1)) ** (steps + 1)


class Solver:
    """What a new solver inherits from; a frozen dataclass of its options.

    Override :meth:`numpy`, :meth:`jax` or both, and what the defaults below do not say.
    "Adding a solver" in the documentation builds one outside the package.

    Attributes
    ----------
    ridge_modes : tuple of str
        The problems it solves.
    chunk : int
        Tokens per chunk.
    shards : int
        Pieces of the time axis that are summarised independently (JAX).

    Examples
    --------
    >>> import olsq
    >>> isinstance(olsq.ConjugateGradient(), olsq.sequence.Solver)
    True
    """

    ridge_modes: ClassVar[tuple[str, ...]] = ("fixed", "discounted")
    chunk: int
    shards: int = 1

    def ridge_modes_without_forgetting(self) -> tuple[str, ...]:
        """The problems it solves where every gate is 1, and the two are one."""
        return self.ridge_modes

    def check_ridge_mode(self, ridge_mode: str, forgets: bool) -> None:
        """Raise ValueError unless it solves this problem."""
        served = self.ridge_modes if forgets else self.ridge_modes_without_forgetting()
        if ridge_mode not in served:
            raise ValueError(
                f"solver {type(self).__name__} does not solve ridge_mode={ridge_mode!r} here, "
                f"only {', '.join(map(repr, self.ridge_modes))} if anything is forgotten; "
                "use ChunkExact (the default)"
            )

    @property
    def truncates(self) -> bool:
        """Whether it stops before the answer, so that its steps have a derivative of their own.

        Else ``adjoint="unrolled"`` is the implicit one.
        """
        return True

    def check_unrolled(self) -> None:
        """Raise ValueError if its steps cannot be differentiated (``adjoint="unrolled"``)."""

    def review(self, log_forget: NDArray[Any] | None, forget: NDArray[Any] | None) -> None:
        """Warn, or raise, where gates (B, T) that can be seen are outside what it serves."""

    def numpy(self) -> NumpySolver:
        """The form that solves NumPy arrays, without JAX."""
        raise NotImplementedError(f"solver {type(self).__name__} has no NumPy form")

    def jax(self) -> JaxSolver:
        """The form that solves JAX arrays."""
        raise NotImplementedError(f"solver {type(self).__name__} has no JAX form")


@dataclass(frozen=True)
class ChunkExact(Solver):
    """Exact solves for every token at the cost of a few products per chunk.  The default solver.

    Exact in the discounted problem and wherever nothing is forgotten.  In the fixed problem with
    forgetting, the chunk's inverse differs from the wanted one by a ridge known from the gates,
    and is corrected: by a few Chebyshev steps while the gates of every chunk stay mild.  Where they
    do not, conjugate gradient goes to ``tol`` without that inverse if it soon can, else
    preconditioned by two of them per chunk, so that a reset (a gate of 0) inside a chunk costs no
    accuracy.

    Parameters
    ----------
    chunk : int
        Tokens per chunk.
    corrections : int, optional
        Number of Chebyshev steps in the fixed problem, whatever the gates are.  None chooses
        from the gates for an error of ``tol``.
    tol : float, optional
        Relative error wanted; None is 25 eps: 3e-6 in float32 and 6e-15 in float64.
    max_steps : int
        Most conjugate-gradient steps of a token where gates are harsh; 8 d more in JAX, where it
        is first tried without the chunk's factors.
    shards : int
        Pieces of the time axis whose boundary moments are computed independently and then
        merged; set it to the number of devices the time axis is sharded over.

    Notes
    -----
    Solves both problems.  After a gate of 0 the discounted one has no ridge left: outputs are NaN
    until d samples came, and exact from the d-th independent one on.
    Cost per token with C = d = m = 64: 49k multiply-adds, 12k more per correction; gated linear
    attention 20k.  Memory: two arrays (d, d) per chunk, and (T, d).
    The gradients are implicit, of any order, forward and reverse.  A solve that goes on to
    rounding has no iterations with a derivative of their own, so ``adjoint="unrolled"`` is the
    same there, and refused with ``corrections`` given.
    The relative error of a token is a small multiple of the condition number of its own system
    times eps, whatever its neighbours are: where a chunk's factors would lose digits (keys of
    very different sizes, long repeats at a tiny ridge), they precondition conjugate gradient.
    Given ``corrections`` it is what they leave: there is a RuntimeWarning where gates that can be
    seen need more, and ``stats.bound`` everywhere.

    Examples
    --------
    >>> import olsq
    >>> olsq.ChunkExact(chunk=32)
    ChunkExact(chunk=32, corrections=None, tol=None, max_steps=200, shards=1)
    """

    chunk: int = 64
    corrections: int | None = None
    tol: float | None = None
    max_steps: int = 200
    shards: int = 1

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.shards < 1 or self.max_steps < 1:
            raise ValueError("chunk, shards and max_steps must be at least 1")
        if self.corrections is not None and self.corrections < 0:
            raise ValueError(f"corrections must be >= 0 or None, got {self.corrections}")

    @property
    def truncates(self) -> bool:
        """Only a fixed number of corrections is anything but the answer to rounding."""
        return self.corrections is not None

    def check_unrolled(self) -> None:
        """Refuse: a derivative through the factors is wrong at a weight or a gate of exactly 0."""
        if self.corrections is not None:
            raise ValueError(
                f"ChunkExact(corrections={self.corrections}) starts from a factorisation, through "
                'which there is no derivative at weights and gates of 0; use adjoint="implicit", '
                "corrections=None, or a solver that only iterates (ConjugateGradient, Chebyshev)"
            )

    def review(self, log_forget: NDArray[Any] | None, forget: NDArray[Any] | None) -> None:
        """Warn where fixed corrections leave more than ``TOO_FEW`` of the answer to gates seen."""
        if self.corrections is None or log_forget is None or forget is None:
            return
        sums = np.where(forget == 0, FLOOR, np.maximum(np.nan_to_num(log_forget), FLOOR))
        c = min(self.chunk, sums.shape[1])
        starts = np.arange(0, sums.shape[1], c)
        spans = np.add.reduceat(sums, starts, axis=1) - sums[:, starts]
        left = correction_error(float(np.exp(-spans.min())), self.corrections)
        if left > TOO_FEW:
            warnings.warn(
                f"ChunkExact(corrections={self.corrections}) may miss {min(left, 1):.0%} of the "
                f"answer where gates fall to {np.exp(spans.min()):.2g} within a chunk of {c}: use "
                "corrections=None (the default), which chooses, or a shorter chunk",
                RuntimeWarning,
                stacklevel=4,
            )

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.chunk_exact import NumpyChunkExact

        return NumpyChunkExact(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.chunk_exact import JaxChunkExact

        return JaxChunkExact(self)


@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """Conjugate gradient with a tolerance per token.

    Parameters
    ----------
    max_steps : int
        Most steps of a token; 0 with ``start="query"`` is gated linear attention.
    tol : float
        A token stops at ``|q - M x| <= tol |q|``.
    chunk : int
        Tokens per chunk of the matrix products; does not change the iterates beyond rounding.
    preconditioner : {None, "chunk"}
        "chunk" uses the factors of :class:`ChunkExact`: two to four steps where the gates are
        mild, no better than None where a chunk forgets nearly everything.
    start : {"jacobi", "query"}
        First iterate: ``q / diag(M)``, or q itself as in MesaNet's equation for k = 0 steps.  With
        a preconditioner P it is not used: the first iterate is 0, and the result of 0 steps P q.

    Notes
    -----
    Solves both problems.  Each step costs one causal linear attention, 12k multiply-adds per
    token at C = d = 64.  Exact after d steps up to rounding.  30 steps at tol 1e-4 is the
    published setting: its error in float32 is 1e-4 on easy streams and can exceed 0.1 on long
    runs of equal keys.  Implicit gradients solve once more with the same settings and are as
    accurate as the solve; ``adjoint="unrolled"`` differentiates exactly ``max_steps`` steps, whose
    derivative comes later than they do: its error is about the square root of ``tol``.

    References
    ----------
    von Oswald et al., "MesaNet: sequence modeling by locally optimal test-time training" (2025),
    appendices B and C.

    Examples
    --------
    >>> import olsq
    >>> olsq.ConjugateGradient(tol=1e-6, preconditioner="chunk").max_steps
    30
    """

    max_steps: int = 30
    tol: float = 1e-4
    chunk: int = 64
    preconditioner: Literal["chunk"] | None = None
    start: Literal["jacobi", "query"] = "jacobi"

    def __post_init__(self) -> None:
        if self.max_steps < 0 or self.chunk < 1:
            raise ValueError("max_steps must be at least 0 and chunk at least 1")
        if not self.tol >= 0:
            raise ValueError(f"tol must be >= 0, got {self.tol}")
        if self.preconditioner not in (None, "chunk"):
            raise ValueError(f"preconditioner must be None or 'chunk', got {self.preconditioner!r}")
        if self.start not in ("jacobi", "query"):
            raise ValueError(f"start must be 'jacobi' or 'query', got {self.start!r}")

    def check_unrolled(self) -> None:
        """Refuse: a derivative through the factors is wrong at a weight or a gate of exactly 0."""
        if self.preconditioner is not None:
            raise ValueError(
                'ConjugateGradient(preconditioner="chunk") starts from a factorisation, through '
                'which there is no derivative at weights and gates of 0; use adjoint="implicit" '
                "or preconditioner=None"
            )

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.conjugate_gradient import NumpyConjugateGradient

        return NumpyConjugateGradient(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.conjugate_gradient import JaxConjugateGradient

        return JaxConjugateGradient(self)


@dataclass(frozen=True)
class Chebyshev(Solver):
    """A fixed number of Chebyshev steps; no inner products, no stopping test.

    Parameters
    ----------
    steps : int
        Steps after the first iterate ``q / middle``.
    chunk : int
        Tokens per chunk of the matrix products.
    eigenvalue_ratio : float, optional
        Largest eigenvalue of H_t in units of the token's largest ridge, where it is known: for a
        ridge of ``ratio`` times a norm of H_t it is ``1 / ratio``.  Too small a number diverges.
        None bounds it by the trace of H_t.

    Notes
    -----
    Solves ``ridge_mode="fixed"`` only: its lower bound of the spectrum is the smallest ridge,
    which the discounted problem forgets.  The upper bound is that of H_t plus the largest ridge.
    Error at most ``2 rho^(steps+1)``, ``rho = (sqrt(k)-1)/(sqrt(k)+1)``, k the ratio of the
    bounds: good where the ridge grows with H, as in Gated KalmaNet; otherwise
    :class:`ChunkExact` needs 1 to 3 such steps where this needs sqrt(k).

    References
    ----------
    Golub and Varga, "Chebyshev semi-iterative methods" (1961); Gated KalmaNet, arXiv 2511.21016.

    Examples
    --------
    >>> import olsq
    >>> olsq.Chebyshev(steps=40).steps
    40
    """

    steps: int = 30
    chunk: int = 64
    eigenvalue_ratio: float | None = None

    ridge_modes: ClassVar[tuple[str, ...]] = ("fixed",)

    def __post_init__(self) -> None:
        if self.steps < 0 or self.chunk < 1:
            raise ValueError("steps must be at least 0 and chunk at least 1")
        if self.eigenvalue_ratio is not None and not self.eigenvalue_ratio > 0:
            raise ValueError(f"eigenvalue_ratio must be > 0 or None, got {self.eigenvalue_ratio}")

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.chebyshev import NumpyChebyshev

        return NumpyChebyshev(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.chebyshev import JaxChebyshev

        return JaxChebyshev(self)


@dataclass(frozen=True)
class Neumann(Solver):
    """The first ``terms`` terms of ``M^{-1} = 1/c sum_j (I - M/c)^j`` with c the trace of M.

    Parameters
    ----------
    terms : int
        Terms of the series; 1 is ``q / c``, gated linear attention up to a scale.
    chunk : int
        Tokens per chunk of the matrix products.

    Notes
    -----
    Solves both problems, slowly: the error falls by ``1 - lambda_min / c`` per term.  It is what
    a stack of linear attention layers can compute (the thesis, section 3.7.2.3), which is why it
    is here; as a solver every other one is better.

    Examples
    --------
    >>> import olsq
    >>> olsq.Neumann(terms=10).terms
    10
    """

    terms: int = 30
    chunk: int = 64

    def __post_init__(self) -> None:
        if self.terms < 1 or self.chunk < 1:
            raise ValueError("terms and chunk must be at least 1")

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.neumann import NumpyNeumann

        return NumpyNeumann(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.neumann import JaxNeumann

        return JaxNeumann(self)


@dataclass(frozen=True)
class Recursive(Solver):
    """Classical recursive least squares in covariance form.

    Parameters
    ----------
    reverse : bool
        Walk the reverse-mode gradient's solve backwards in time from the last covariance, by
        the thesis' reverse Sherman-Morrison formula, instead of forwards again from the first.
        Both take memory independent of T; the reverse walk divides by ``1 - weight k R k`` and
        loses accuracy where one sample carries most of what is known in its direction.
    chunk : int
        Tokens per chunk of the read-out.

    Notes
    -----
    Solves ``ridge_mode="discounted"``; "fixed" too where nothing is forgotten (the problems then
    agree) and the ridge is the same for all tokens.  T sequential steps of O(d^2): right for few
    tokens, or as the classical baseline.  The update subtracts ``h h^T``, which is symmetric bit
    by bit; float32 holds about kappa 1e2 (forget 0.99, 1e5 samples), float64 1e6.
    A gate of exactly 0 leaves the discounted problem without a ridge: its outputs are NaN.

    References
    ----------
    von Oswald, thesis, section 3.7.1; Sherman and Morrison (1950).

    Examples
    --------
    >>> import olsq
    >>> olsq.Recursive().ridge_modes
    ('discounted',)
    """

    reverse: bool = False
    chunk: int = 64

    ridge_modes: ClassVar[tuple[str, ...]] = ("discounted",)

    def ridge_modes_without_forgetting(self) -> tuple[str, ...]:
        """Both: the problems are one where nothing is forgotten."""
        return ("discounted", "fixed")

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError("chunk must be at least 1")

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.recursive import NumpyRecursive

        return NumpyRecursive(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.recursive import JaxRecursive

        return JaxRecursive(self)


@dataclass(frozen=True)
class Dense(Solver):
    """One Cholesky factorisation of size d per token.

    Parameters
    ----------
    chunk : int
        Tokens whose systems are in memory at once.

    Notes
    -----
    Solves both problems with any gates.  Cost O(d^3) per token; memory O(chunk d^2) per stream,
    because chunks are solved one after another.  Backward error of a Cholesky solve: relative
    error of q* about kappa times the unit roundoff of the dtype.

    Examples
    --------
    >>> import olsq
    >>> olsq.Dense().ridge_modes
    ('fixed', 'discounted')
    """

    chunk: int = 32

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError("chunk must be at least 1")

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.dense import NumpyDense

        return NumpyDense(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.dense import JaxDense

        return JaxDense(self)


SOLVERS: dict[str, type[Solver]] = {
    kind.__name__: kind
    for kind in (ChunkExact, ConjugateGradient, Chebyshev, Neumann, Recursive, Dense)
}
