"""The result of a panel regression, and its table."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import split_intercept
from olsq.online.forms.student import check_level, t_inference
from olsq.online.inference.summary import CoefficientFit, CoefficientTables, short


@dataclass(frozen=True, repr=False)
class PanelSummary(CoefficientTables):
    """The results of a panel regression as a table; see :class:`PanelFit` for the numbers."""

    n_rows: int
    n_groups: int
    errors: str

    @classmethod
    def _fields(cls) -> Collection[str]:
        return CoefficientFit.__dataclass_fields__

    def _facts(self, fit: CoefficientFit) -> list[tuple[str, str]]:
        noise = [("Residual std. error", short(math.sqrt(fit.sigma2)))]
        return [
            ("Rows", f"{self.n_rows:,}"),
            ("Groups", f"{self.n_groups:,}"),
            ("Standard errors", self.errors),
            ("Degrees of freedom", short(fit.freedom)),
            *(noise if math.isfinite(fit.sigma2) else []),
            ("R-squared", short(fit.r_squared)),
        ]


@dataclass(frozen=True, repr=False)
class PanelFit:
    """Result of a regression of all groups.

    Attributes
    ----------
    coef, stderr : array (d,) or (m, d)
        Coefficients and standard errors; stderr is inf where the rows do not determine one.
    intercept, intercept_stderr : float or array (m,)
        0 without one, and of the within estimator, whose intercepts are ``effects``.
    cov_params : array (k, k) or (m, k, k)
        Covariance of the coefficients, the intercept first if there is one; as
        :meth:`RecursiveLeastSquares.cov_params`.
    freedom : float
        Degrees of freedom of tests and intervals; inf where ``noise_variance`` is known.
    sigma2 : float or array (m,)
        Noise variance; NaN for a mean of regressions.
    r_squared : float or array (m,)
        Of all rows (pooled), of the rows about the means of their groups (within), or the mean of
        those of the regressions (Fama-MacBeth).
    n_rows, n_groups : int
        Rows and groups that entered.
    groups : list
        The labels of the arrays below, group by group.
    effects : array (G,) or (G, m), or None
        Intercepts of the groups, of the within estimator; NaN for a group without rows.
    group_coef, group_intercept : array (G, d) and (G,), with targets (G, m, d) and (G, m), or None
        Coefficients of each regression, of Fama-MacBeth.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> x = np.arange(6.0)
    >>> y, by = 2 * x + [1, 1, 1, 9, 9, 9], [1, 1, 1, 2, 2, 2]
    >>> fit = olsq.GroupedLeastSquares().fit(x[:, None], y, by=by).within()
    >>> fit.coef.round(3), fit.effects.round(3)
    (array([2.]), array([1., 9.]))
    """

    title: str
    names: list[str]
    errors: str
    coef: NDArray[np.float64]
    stderr: NDArray[np.float64]
    intercept: Any
    intercept_stderr: Any
    cov_params: NDArray[np.float64]
    freedom: float
    sigma2: Any
    r_squared: Any
    n_rows: int
    n_groups: int
    groups: list[Any]
    effects: NDArray[np.float64] | None
    group_coef: NDArray[np.float64] | None
    group_intercept: NDArray[np.float64] | None
    notes: list[str]

    @property
    def tvalues(self) -> NDArray[np.float64]:
        """t statistics of ``coef``; NaN where undetermined."""
        return t_inference(self.coef, self.stderr, self.freedom, 0.95)[0]

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Probabilities of a larger ``|t|`` if the coefficient were 0; NaN where undetermined."""
        return t_inference(self.coef, self.stderr, self.freedom, 0.95)[1]

    def conf_int(self, level: float = 0.95) -> tuple[NDArray, NDArray]:
        """Compute lower and upper confidence bounds of ``coef``.

        Raises ValueError for a level that is not between 0 and 1.
        """
        lower, upper = t_inference(self.coef, self.stderr, self.freedom, check_level(level))[2:]
        return lower, upper

    def summary(self, *, level: float = 0.95) -> PanelSummary:
        """Summarise the regression as a table to print or to show in a notebook.

        Raises ValueError for a level that is not between 0 and 1.
        """
        level = check_level(level)
        coef, stderr = np.atleast_2d(self.coef), np.atleast_2d(self.stderr)
        if len(self.names) > coef.shape[1]:
            coef = np.column_stack([self.intercept, coef])
            stderr = np.column_stack([self.intercept_stderr, stderr])
        t, pvalue, lower, upper = t_inference(coef, stderr, self.freedom, level)
        sigma2, r_squared = np.atleast_1d(self.sigma2), np.atleast_1d(self.r_squared)
        fits = [
            CoefficientFit(
                coef=coef[i],
                stderr=stderr[i],
                t=t[i],
                pvalue=pvalue[i],
                lower=lower[i],
                upper=upper[i],
                freedom=self.freedom,
                sigma2=float(sigma2[i]),
                r_squared=float(r_squared[i]),
                undetermined=self.notes,
            )
            for i in range(len(coef))
        ]
        return PanelSummary(
            self.title, self.names, level, fits, self.n_rows, self.n_groups, self.errors
        )

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def panel_fit(
    *,
    theta: NDArray,
    V: NDArray,
    intercept: bool,
    one_target: bool,
    effects: NDArray | None = None,
    group_theta: NDArray | None = None,
    **fields: Any,
) -> PanelFit:
    """Return the result for coefficients theta (m, k) and covariances V (m, k, k)."""
    stderr = np.sqrt(np.diagonal(V, axis1=1, axis2=2))

    def split(values: NDArray) -> tuple[NDArray, Any]:
        """Return coefficients and intercepts of (..., m, k), without the targets' axis if none."""
        values = values[..., 0, :] if one_target else values
        slopes, constants = split_intercept(values, intercept)
        return slopes, constants if constants.ndim else float(constants)

    def shaped(values: NDArray) -> Any:
        return float(values[0]) if one_target else values

    coef, constant = split(theta)
    errors, intercept_stderr = split(stderr)
    each = (None, None) if group_theta is None else split(group_theta)
    fields["sigma2"], fields["r_squared"] = shaped(fields["sigma2"]), shaped(fields["r_squared"])
    return PanelFit(
        coef=coef,
        stderr=errors,
        intercept=constant,
        intercept_stderr=intercept_stderr,
        cov_params=V[0] if one_target else V,
        effects=effects[:, 0] if effects is not None and one_target else effects,
        group_coef=each[0],
        group_intercept=each[1],
        **fields,
    )
