"""Forgetting that differs between coefficients or directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag, check_integer, shown
from olsq.forgetting.base import (
    Forgetting,
    per_coefficient,
    read_factor,
    read_number,
    read_numbers,
    sum_of_weights,
)
from olsq.forgetting.entries import (
    CYCLIC,
    DIRECTIONAL,
    FACTOR,
    PER_COEFFICIENT,
    RESETTING,
    SMALLEST,
)


@dataclass(frozen=True)
class PerCoefficient(Forgetting):
    """Vector forgetting: a factor for each coefficient.

    ``Rbar_t = F R_{t-1} F`` with ``F = diag(sqrt(factors))``, that is ``Pbar = F^-1 P F^-1``.

    Parameters
    ----------
    factors : sequence of float (k,)
        In (0, 1], one for each coefficient, the intercept's first where there is one.

    Notes
    -----
    Steady-state window: ``1 / (1 - factor_j)`` rows for coefficient j alone; ``window`` is the
    longest.  With equal factors it is exponential forgetting, to rounding.  With others it
    minimises no weighted sum of squares: it is the recursion.  The coefficients are carried by
    their increments, so a column that is forgotten far below the others loses no digits.
    ``sigma2_`` forgets with the largest factor.  It winds up as exponential forgetting does, and is
    protected like it: a quiet coefficient is held when its information has fallen by 1e-12.  Does
    not merge.

    References: Saelid & Foss 1983, "Adaptive controllers with a vector variable forgetting factor";
    Vahidi, Stefanopoulou & Peng 2005.

    Examples
    --------
    >>> import olsq
    >>> olsq.forgetting.PerCoefficient([1.0, 0.9, 0.98]).factors
    (1.0, 0.9, 0.98)
    """

    factors: Any
    code: ClassVar[int] = PER_COEFFICIENT

    def __post_init__(self) -> None:
        factors = read_numbers(self.factors, "factors")
        if not isinstance(factors, tuple) or isinstance(factors[0], tuple):
            raise ValueError(
                f"factors must be one for each coefficient, got {shown(self.factors)}; one for all "
                "is Exponential(factor)"
            )
        self._set(factors=tuple(read_factor(f, "factors") for f in factors))

    @property
    def window(self) -> float:
        return round(sum_of_weights(max(self.factors)), 9)

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR] = max(self.factors)
        return options

    def vectors(self, n_coefficients: int) -> NDArray[np.float64]:
        vector = per_coefficient(self.factors, "factors", n_coefficients)
        return np.sqrt(vector)[None].copy()


@dataclass(frozen=True)
class Directional(Forgetting):
    """Directional forgetting (SIFt): only in the direction that the row brings news of.

    ``Rbar_t = R - (1 - factor) R x x^T R / (x^T R x)`` with ``R = R_{t-1}``, that is ``Pbar = P +
    (1 / factor - 1) x x^T / (x^T R x)``: the information along x is forgotten, and nothing else.

    Parameters
    ----------
    factor : float
        In (0, 1].
    smallest : float, default 0
        Rows shorter than this, ``sqrt(w) |x| < smallest`` (with an intercept x is never shorter
        than 1), are information-filtered: they neither teach nor make forget.

    Notes
    -----
    Steady-state window: ``d / (1 - factor)`` rows where rows excite d directions alike, since each
    row forgets along its own alone.  So for a window of n rows of d regressors (the intercept
    counts) give ``factor = 1 - d / n``.  ``window`` is that of one direction, ``1 / (1 - factor)``;
    ``window_for(d)``, and ``est.forgetting_["window"]``, that of d.  What no row excites is kept
    for ever, at its value and with its standard error.  So nothing winds up: for rows with
    ``smallest <= |x| <= b`` the eigenvalues of R have bounds that need no persistent excitation
    (the paper gives them).  For one direction alone it is exponential forgetting.
    It minimises no weighted sum of squares: it is the recursion.  ``sigma2_`` is the mean of ``w
    e^2 / s`` with exponential weights.  A row of weight 0 makes nothing forget.  Does not merge.

    References: Lai & Bernstein 2024, "SIFt-RLS: Subspace of information forgetting recursive least
    squares" (arXiv 2404.10844), for rows one at a time; there it equals Cao & Schwartz 2000, "A
    directional forgetting algorithm based on the decomposition of the information matrix".

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares(forget=olsq.forgetting.Directional(0.9))
    >>> X = np.random.default_rng(0).standard_normal((5000, 2))
    >>> X[100:, 1] = 0.0  # a regressor that falls silent
    >>> _ = est.fit(X, X @ [1.0, 2.0])
    >>> est.coef_.round(3), est.determined_
    (array([1., 2.]), array([ True,  True]))
    >>> olsq.forgetting.Directional(0.99).window_for(64)
    6400.0
    """

    factor: float
    smallest: float = 0.0
    code: ClassVar[int] = DIRECTIONAL

    def __post_init__(self) -> None:
        rule = "be >= 0 and finite"
        self._set(
            factor=read_factor(self.factor),
            smallest=read_number(self.smallest, "smallest", -1e-300, 1e150, rule),
        )

    @property
    def window(self) -> float:
        return round(sum_of_weights(self.factor), 9)

    def window_for(self, n_coefficients: int) -> float:
        check_integer("n_coefficients", n_coefficients, 1)
        return n_coefficients * self.window

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR], options[SMALLEST] = self.factor, self.smallest
        return options


@dataclass(frozen=True)
class ExponentialResetting(Forgetting):
    """Exponential forgetting towards a level of information instead of towards none.

    ``Rbar_t = factor R_{t-1} + (1 - factor) L`` with ``L = diag(information)``, the part that is
    added observing "the coefficient has its present value", so that nothing moves.

    Parameters
    ----------
    factor : float
        In (0, 1].
    information : float or sequence (k,), default 1
        The information that a quiet direction tends to, as a ridge: coefficient j's standard error
        is then at most about ``sqrt(sigma2 / information_j)``.  Positive.
    cyclic : bool, default True
        Add to one coefficient a row, in turn, ``(1 - factor^k) information_j`` every k rows: O(d^2)
        a row; it keeps the information between ``factor^(k - 1)`` times that and that.
        False: to all at every row, the equation above, O(d^3).

    Notes
    -----
    Steady-state window: ``1 / (1 - factor)`` rows, and as much again as ``information`` is worth.
    ``R_t >= information`` (cyclic: ``>= factor^(k - 1) information``) from any start at or above
    it.  Other than with ``ridge_mode="fixed"`` the coefficients are not drawn to zero but to where
    they are.  ``sigma2_`` is the mean of ``w e^2 / s`` with exponential weights.  Does not merge.

    References: Salgado, Goodwin & Middleton 1988, "Modified least squares algorithm incorporating
    exponential resetting and forgetting", whose modified P-recursion costs O(d^3); in information
    form, and cyclic: Lai & Bernstein 2023, "Exponential resetting and cyclic resetting recursive
    least squares".

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares(
    ...     forget=olsq.forgetting.ExponentialResetting(0.9, information=4.0), fit_intercept=False)
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> X[500:] = 0.0
    >>> _ = est.fit(X, X @ [1.0, 2.0])
    >>> est.moments().gram.round(1) + 0.0, est.coef_.round(6)
    (array([[3.6, 0. ],
           [0. , 4. ]]), array([1., 2.]))
    """

    factor: float
    information: Any = 1.0
    cyclic: bool = True
    code: ClassVar[int] = RESETTING

    def __post_init__(self) -> None:
        information = read_numbers(self.information, "information")
        entries = information if isinstance(information, tuple) else (information,)
        if isinstance(entries[0], tuple) or not all(entry > 0 for entry in entries):
            raise ValueError(
                "information must be positive, a number or one for each coefficient, got "
                f"{shown(self.information)}"
            )
        self._set(
            factor=read_factor(self.factor),
            information=information,
            cyclic=check_flag("cyclic", self.cyclic),
        )

    @property
    def window(self) -> float:
        return round(sum_of_weights(self.factor), 9)

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR], options[CYCLIC] = self.factor, float(self.cyclic)
        return options

    def vectors(self, n_coefficients: int) -> NDArray[np.float64]:
        vector = per_coefficient(self.information, "information", n_coefficients)
        # cyclic: each coefficient's turn comes every k rows and makes up for all of them
        share = 1.0 - self.factor ** (n_coefficients if self.cyclic else 1)
        return (vector * share)[None].copy()
