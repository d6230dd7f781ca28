"""Coefficients and moments of estimators whose state is that of a least-squares problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.base import StreamingRegressor
from olsq.online.rows import complex_rows
from olsq.problem import Moments


class Coefficients(StreamingRegressor):
    """Base of the estimators whose state holds the moments of X and y, by coefficient."""

    @property
    def coef_(self) -> NDArray[np.floating]:
        """Coefficients (d,) or (m, d); minimum norm while undetermined, never NaN."""
        return self._slopes()

    def moments(self) -> Moments:
        """Return the state as moments, for :func:`olsq.online_lstsq`, :func:`olsq.query` or an
        estimator.

        Returns
        -------
        Moments
            NumPy, float64 whatever the dtype of the state: gram (k, k) and cross (m, k), m = 1
            for a one-dimensional y.  k is d, or d + 1 with an intercept, whose column is the
            *first*: put a 1 before each key or query, and a 0 before the ridge.

        Raises
        ------
        NotFittedError
            Before the first sample.

        Notes
        -----
        The gram holds what is left of a discounted ridge (and a rolling window's ridge): query
        with no ridge.  With ``ridge_mode="fixed"`` it does not: query with that ridge.  It also
        holds what wind-up protection added.  Left behind are the sums behind ``sigma2_`` and
        standard errors, the number of rows, and digits: the gram squares the condition number.
        O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, [1.0, 2.0, 3.0])
        >>> est.moments().gram.round(12)
        array([[2., 1.],
               [1., 2.]])
        """
        self._engine_or_raise()
        complex_rows.refuse_complex(
            self._origin, "moments()", "use save and merge of the estimators instead"
        )
        with self._at_work():
            form = self._form()
            if len(self._engine.groups) > 1:
                raise ValueError(
                    "targets that missed different rows have different moments: there is no "
                    "common gram. Fit one estimator per target."
                )
            return form.moments(self._origin.ridge, self._origin.discounted)
