"""The summary of a regression: its numbers, and their display as text and HTML."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from olsq.online.calls.history import values_of_target
from olsq.online.forms.form import Form
from olsq.online.forms.statistics import counts_of, objective_of, squares_about_mean
from olsq.online.forms.student import t_inference

WIDTH = 78  # of the text, in characters


@dataclass(frozen=True)
class CoefficientFit:
    """Results for one target of a table; arrays (k,), the intercept's first if there is one."""

    coef: NDArray[np.float64]
    stderr: NDArray[np.float64]
    t: NDArray[np.float64]
    pvalue: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    freedom: float
    sigma2: float
    r_squared: float
    undetermined: list[str]


@dataclass(frozen=True)
class Fit(CoefficientFit):
    """Results for one target of a summary; statsmodels' names are in brackets.

    Attributes
    ----------
    coef, stderr, t, pvalue, lower, upper : arrays (k,)
        By coefficient, the intercept first if there is one; stderr is inf, and t and pvalue are
        NaN, where a coefficient is undetermined.
    effective_rows : float
        Rows by their forgetting weights, ``sum zeta``; the number of rows at forget = 1.
    freedom : float
        Degrees of freedom of ``sigma2`` [df_resid]; inf where ``noise_variance`` is known.
    effective_coefficients : float
        ``rank - tr(Lambda P)``; the number of coefficients without a ridge.
    sigma2 : float
        Noise variance [scale].
    r_squared, adjusted_r_squared : float
        About the mean with an intercept, or a regressor that has had one value in every row; about
        0 without one.
    f_statistic, f_pvalue : float
        Of all coefficients but the intercept being 0 [fvalue, f_pvalue]; NaN with a ridge.
    log_likelihood, aic, bic : float
        At the maximum-likelihood variance, or the known one, rows weighted by forgetting
        [llf, aic, bic].
    """

    effective_rows: float
    effective_coefficients: float
    adjusted_r_squared: float
    f_statistic: float
    f_pvalue: float
    log_likelihood: float
    aic: float
    bic: float
    condition: float


@dataclass(frozen=True, repr=False)
class CoefficientTables:
    """A title, and for every target a list of facts and a table of coefficients.

    A fit has ``coef``, ``stderr``, ``t``, ``pvalue``, ``lower``, ``upper`` (k,), ``freedom`` and
    ``undetermined``, lines to print below the table.  Subclasses say which facts stand above it.
    """

    title: str
    names: list[str]
    level: float
    fits: list[Any]

    @classmethod
    def _fields(cls) -> Collection[str]:
        """Return the names of a fit's attributes, which are those of a summary of one target."""
        raise NotImplementedError

    def _facts(self, fit: Any) -> list[tuple[str, str]]:
        """Return labels and values to stand above the table of a fit."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if (known := name in self._fields()) and len(self.fits) == 1:
            return getattr(self.fits[0], name)
        hint = "; see fits, one for each target" if known else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __str__(self) -> str:
        return "\n".join([self.title, *(self._text(i) for i in range(len(self.fits)))])

    __repr__ = __str__

    def _text(self, i: int) -> str:
        fit = self.fits[i]
        lines = ["=" * WIDTH]
        if len(self.fits) > 1:
            lines += [f"target {i}", "-" * WIDTH]
        facts = self._facts(fit)
        half = (len(facts) + 1) // 2
        column = (WIDTH - 4) // 2
        for left, right in zip(facts[:half], [*facts[half:], ("", "")], strict=False):
            lines.append("    ".join(_spread(label, text, column) for label, text in (left, right)))
        head, rows = self._table(fit)
        wide = max(9, *(len(row[0]) for row in rows))
        widths = [wide, *(max(len(r[j]) for r in [head, *rows]) for j in range(1, 7))]
        lines += ["-" * WIDTH, _line(head, widths), "-" * WIDTH]
        lines += [_line(row, widths) for row in rows]
        lines.append("=" * WIDTH)
        for note in fit.undetermined:
            lines += textwrap.wrap(note, WIDTH)
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        parts = [f"<p><code>{html.escape(self.title)}</code></p>"]
        for i, fit in enumerate(self.fits):
            if len(self.fits) > 1:
                parts.append(f"<p>target {i}</p>")
            head, rows = self._table(fit)
            parts.append(_html_table(None, [list(pair) for pair in self._facts(fit)]))
            parts.append(_html_table(head, rows))
            parts += [f"<p>{html.escape(line)}</p>" for line in fit.undetermined]
        return "\n".join(parts)

    def _table(self, fit: Any) -> tuple[list[str], list[list[str]]]:
        tail = (1 - self.level) / 2
        t = "z" if math.isinf(fit.freedom) else "t"
        head = ["", "coef", "std err", t, f"P>|{t}|", f"[{tail:.3g}", f"{1 - tail:.3g}]"]
        rows = []
        for j, name in enumerate(self.names):
            values = [_aligned(fit.coef[j])]
            if np.isfinite(fit.stderr[j]):
                values += [_aligned(fit.stderr[j]), f"{fit.t[j]:.3f}", _probability(fit.pvalue[j])]
                values += [_aligned(fit.lower[j]), _aligned(fit.upper[j])]
            else:
                values += ["undetermined", "", "", "", ""]
            rows.append([name, *values])
        return head, rows


@dataclass(frozen=True, repr=False)
class Summary(CoefficientTables):
    """All results of a regression for the rows so far.

    Attributes
    ----------
    title : str
        The estimator, as it prints itself.
    names : list of str
        Of the coefficients, the intercept first if there is one.
    n_samples : int
        Rows learned.
    level : float
        Of the confidence bounds.
    errors : str
        What the standard errors mean: "posterior" or "sandwich".
    fits : list
        One for each target, with ``coef``, ``stderr``, ``t``, ``pvalue``, ``lower``, ``upper``
        (k,), ``effective_rows``, ``freedom``, ``effective_coefficients``, ``sigma2``,
        ``r_squared``, ``adjusted_r_squared``, ``f_statistic``, ``f_pvalue``, ``log_likelihood``,
        ``aic``, ``bic``, ``condition`` (of the regressors' singular values) and ``undetermined``,
        a line for each coefficient that rows so far do not determine.  With one target they are
        attributes of the summary too.
    """

    n_samples: int
    errors: str

    @classmethod
    def _fields(cls) -> Collection[str]:
        return Fit.__dataclass_fields__

    def _facts(self, fit: Fit) -> list[tuple[str, str]]:
        return [
            ("Rows learned", f"{self.n_samples:,}"),
            ("Effective rows", short(fit.effective_rows)),
            ("Degrees of freedom", short(fit.freedom)),
            ("Effective coefficients", short(fit.effective_coefficients)),
            (
                "Known noise std." if math.isinf(fit.freedom) else "Residual std. error",
                short(math.sqrt(fit.sigma2)),
            ),
            ("Standard errors", self.errors),
            ("Condition number", short(fit.condition)),
            ("R-squared", short(fit.r_squared)),
            ("Adj. R-squared", short(fit.adjusted_r_squared)),
            ("F-statistic", short(fit.f_statistic)),
            ("Prob (F-statistic)", _probability(fit.f_pvalue)),
            ("Log-likelihood", short(fit.log_likelihood)),
            ("AIC", short(fit.aic)),
            ("BIC", short(fit.bic)),
        ]


def summarise(estimator: Any, level: float) -> Summary:
    """Summarise a fitted estimator, which is locked."""
    origin = estimator._origin
    theta, (sigma2, errors) = estimator._theta(), estimator._statistics()
    logs, n = estimator._log_weight_sums(), origin.columns
    names, fits, values = estimator._coefficient_names(), [Any] * n, estimator._constant_values
    for targets, engine in estimator._engine.groups:
        form, constant = engine.form, None
        own = values_of_target(values, int(targets[0]), len(names))
        if own is not None and own.any():
            at = int(np.flatnonzero(own)[0])
            constant = {at: float(own[at])}
        shared = _shared(form, estimator, names)
        for i, target in enumerate(targets):
            estimates = tuple(array[target] for array in (theta, sigma2, errors, logs))
            fits[target] = _fit(form, i, estimates, level, origin, shared, constant)
    kind = "sandwich" if origin.sandwich else "posterior"
    return Summary(repr(estimator), names, level, fits, estimator.n_samples_seen_, kind)


def _shared(form: Form, estimator: Any, names: list[str]) -> tuple[Any, bool, float, list[str]]:
    """Return what all targets of a form share: counts, whether the noise variance is known, the
    condition number, unknown coefficients.
    """
    origin = estimator._origin
    counts = counts_of(form, origin.ridge, origin.discounted)
    condition = math.inf
    if form.full_rank:
        values = np.linalg.svd(form.whitened(np.eye(len(names)))[0], compute_uv=False)
        condition = float(values[0] / values[-1]) if values[-1] > 0 else math.inf
    gates, rows = estimator.forget, "rows"
    if estimator._forgets_in_time:
        gates, rows = 0.5, "half-lives"
    elif estimator.half_life is not None:
        gates = 2.0 ** (-1.0 / estimator.half_life)
    lines = []
    now, excited = form.columns
    for j in np.flatnonzero(~form.determined()):
        if now[j] == 0:
            lines.append(f"{names[j]}: undetermined; it has been 0 in every row that still counts.")
        elif now[j] < 0.5 * excited[j]:
            left = now[j] / excited[j]
            line = f"{names[j]}: undetermined; its information is {left:.0e} of what it was when it"
            line += " was last other than 0"
            if np.ndim(gates) == 0 and 0 < gates < 1:
                line += f", at least {math.log(left) / math.log(gates):,.0f} {rows} ago"
            lines.append(line + ".")
        else:
            lines.append(
                f"{names[j]}: undetermined; rows that still count do not tell it from the others."
            )
    return counts, estimator.noise_variance is not None, condition, lines


def _fit(
    form: Form,
    i: int,
    estimates: tuple[Any, ...],
    level: float,
    origin: Any,
    shared: tuple[Any, bool, float, list[str]],
    constant: dict[int, float] | None,
) -> Fit:
    theta, sigma2, stderr, logs = estimates
    counts, known_noise, condition, undetermined = shared
    left = counts.freedom  # for an estimate of the noise variance
    freedom = math.inf if known_noise else left
    t, pvalue, lower, upper = t_inference(theta, stderr, freedom, level)
    residual, total = objective_of(form, i, origin.ridge, origin.discounted)
    if constant is not None:
        total = squares_about_mean(form, i, constant, origin.ridge, origin.discounted)
    n, k = counts.rows, counts.coefficients
    first = int(origin.intercept or constant is not None)
    r_squared = 1 - residual / total if total > 0 else math.nan
    # Under forgetting, as many rows of weight 1 as would leave the same degrees of freedom.
    adjusted = 1 - (1 - r_squared) * (left + k - first) / left if left > 0 else math.nan
    slopes = form.rank - first
    f_statistic = f_pvalue = math.nan
    variance = sigma2 if known_noise or not left > 0 else residual / left
    if not origin.ridge.any() and slopes > 0 and freedom > 0 and min(variance, total) > 0:
        f_statistic = (total - residual) / slopes / variance
        f_pvalue = float(f_probability(slopes, freedom, f_statistic))
    likelihood = math.nan
    if n > 0 and residual > 0 and math.isfinite(residual):
        variance = sigma2 if known_noise else residual / n
        likelihood = 0.5 * (logs - n * math.log(2 * math.pi * variance) - residual / variance)
    return Fit(
        coef=theta,
        stderr=stderr,
        t=t,
        pvalue=pvalue,
        lower=lower,
        upper=upper,
        freedom=freedom,
        sigma2=float(sigma2),
        r_squared=float(r_squared),
        undetermined=undetermined,
        effective_rows=n,
        effective_coefficients=k,
        adjusted_r_squared=float(adjusted),
        f_statistic=float(f_statistic),
        f_pvalue=f_pvalue,
        log_likelihood=likelihood,
        aic=2 * k - 2 * likelihood,
        bic=math.log(n) * k - 2 * likelihood if n > 0 else math.nan,
        condition=condition,
    )


def f_probability(r: int, freedom: Any, F: Any) -> Any:
    """Return the probability of a larger F under F(r, freedom), freedom > 0 or inf.

    Where freedom is 0 it means nothing.
    """
    # SciPy's is NaN at inf; 1e300 has the same distribution to the last digit, chi-squared over r.
    return fdtrc(r, np.where(freedom > 0, np.minimum(freedom, 1e300), 1.0), F)


def short(value: float) -> str:
    """Format six significant digits, or "-" where there is no number."""
    if math.isnan(value):
        return "-"
    return f"{value:.6g}"


def _aligned(value: float) -> str:
    """Format six significant digits with trailing zeros."""
    return f"{value:#.6g}".removesuffix(".")


def _probability(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _spread(label: str, text: str, width: int) -> str:
    return label + text.rjust(width - len(label)) if label else ""


def _line(cells: list[str], widths: list[int]) -> str:
    return cells[0].ljust(widths[0]) + "".join(
        "  " + cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)
    )


def _html_table(head: list[str] | None, rows: list[list[str]]) -> str:
    def row(cells: list[str], tag: str) -> str:
        first = f"<th style='text-align:left'>{html.escape(cells[0])}</th>"
        rest = (
            f"<{tag} style='text-align:right'>{html.escape(cell)}</{tag}>" for cell in cells[1:]
        )
        return f"<tr>{first}{''.join(rest)}</tr>"

    top = f"<thead>{row(head, 'th')}</thead>" if head else ""
    return f"<table>{top}<tbody>{''.join(row(r, 'td') for r in rows)}</tbody></table>"
