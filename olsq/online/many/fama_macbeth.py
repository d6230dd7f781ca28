"""Fama-MacBeth regressions: the mean over dates of one regression per date."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from olsq.arrays.checks import is_integer
from olsq.online.estimators.inference import scaled_covariance
from olsq.online.forms.counting import RANK
from olsq.online.inference.robust import bartlett_products
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.panel_fit import PanelFit, panel_fit
from olsq.online.many.panels import Panel


def fama_macbeth(
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    by: Any,
    lags: int = 0,
    fit_intercept: bool = True,
    missing: str = "skip",
) -> PanelFit:
    """Fit a regression for every date and average its coefficients (Fama & MacBeth 1973).

    Parameters
    ----------
    X : array or frame (n, d)
    y : array (n,) or (n, m)
    sample_weight : array (n,), optional
    by : sequence (n,) or str
        The date of every row, or the name of a column of X, as in
        :meth:`GroupedLeastSquares.partial_fit`.  Rows may be in any order.
    lags : int, default 0
        Over how many dates the coefficients are correlated: Newey and West's errors of the mean.
        Dates follow each other as their labels are sorted; gaps between them do not count.  Labels
        that are text are refused, unless it is 0.
    fit_intercept, missing
        As in :class:`GroupedLeastSquares`.

    Returns
    -------
    PanelFit
        ``coef`` is the mean, ``group_coef`` has the regression of every date, dates sorted (text by
        its first appearance).  Dates whose rows do not determine all coefficients are left out, and
        named in the summary.

    Raises
    ------
    ValueError
        For ``lags`` that are no whole number from 0 to below the number of dates used; if no date
        determines the coefficients; for labels that cannot be sorted, or are text where ``lags`` is
        not 0; as ``partial_fit``.

    Notes
    -----
    With b_t the T regressions and S the (Bartlett-weighted) sum of products of ``b_t - mean``, the
    covariance of the mean is ``S / (T (T - 1))``, with T - 1 degrees of freedom: linearmodels'
    ``FamaMacBeth``, with ``cov_type="kernel", bandwidth=lags`` for lags.  O(n d^2).

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> month, beta = np.repeat(np.arange(60), 40), rng.standard_normal((2400, 1))
    >>> premium = 0.5 + 0.1 * rng.standard_normal(60)
    >>> y = premium[month] * beta[:, 0] + rng.standard_normal(2400)
    >>> fit = olsq.fama_macbeth(beta, y, by=month, lags=3)
    >>> fit.coef.round(2), fit.stderr.round(2), fit.n_groups
    (array([0.49]), array([0.02]), 60)
    """
    if not is_integer(lags, 0):
        raise ValueError(f"lags must be a whole number of dates, 0 or more, got {lags!r}")
    groups = GroupedLeastSquares(fit_intercept=fit_intercept, missing=missing)
    groups.fit(X, y, sample_weight, by=by)
    bank, keys = groups._bank, groups.keys()
    panel = Panel(bank, len(keys), "fama_macbeth")
    state, kind = panel.state, panel.kind
    rank = state.estimates(panel.filters, kind).counts[:, RANK]
    used = np.flatnonzero(rank == state.n_coefs)
    if not used.size:
        raise ValueError(
            "no date in by has rows enough to determine all coefficients: a date needs more rows "
            "than X has columns, and regressors that differ from row to row"
        )
    if lags >= used.size:
        raise ValueError(
            f"lags must be below the number of dates that determine the coefficients, "
            f"{used.size}, got {lags}"
        )
    is_text = any(isinstance(part, (str, bytes)) for key in keys for part in _parts(key))
    if is_text and lags:
        raise ValueError(
            f"lags={lags} needs dates in their order, and by holds text such as {keys[0]!r}, which "
            "sorts as text ('10/2020' before '2/2020'): convert it, for instance with "
            "pandas.to_datetime"
        )
    try:
        if not is_text:
            used = np.array(sorted(used.tolist(), key=lambda i: keys[panel.filters[i]]))
    except TypeError:
        raise ValueError(
            "by holds labels that cannot be sorted (of several types), so that no date is known "
            "to follow another: give dates or numbers"
        ) from None
    dates = panel.filters[used]
    theta = state.theta(dates, kind)  # (T, m, k)
    T, mean = used.size, theta.mean(axis=0)
    V = np.array([bartlett_products(own, int(lags)) for own in np.swapaxes(theta - mean, 0, 1)])
    V = scaled_covariance(V, 1.0 / (T * (T - 1)) if T > 1 else np.inf)
    squares = panel.target_squares()[used]
    varies = squares > 0  # a date of one target has no share of a spread
    shares = np.where(varies, 1.0 - state.loss[dates] / np.where(varies, squares, 1.0), 0.0)
    with np.errstate(invalid="ignore"):
        r_squared = shares.sum(axis=0) / varies.sum(axis=0)
    left = len(keys) - T
    note = f"{left:,} of {len(keys):,} dates do not determine the coefficients and are left out."
    return panel_fit(
        title=f"fama_macbeth: mean of {T:,} regressions",
        intercept=bool(fit_intercept),
        names=groups._coefficient_names(),
        errors=f"of the mean, {lags} lags",
        theta=mean,
        V=V,
        one_target=bank._n_targets == 0,
        freedom=T - 1.0,
        sigma2=np.full(len(mean), np.nan),
        r_squared=r_squared,
        n_rows=int(state.seen[dates].sum()),
        n_groups=int(T),
        groups=[keys[f] for f in dates],
        group_theta=theta,
        notes=[note] if left else [],
    )


def _parts(key: Any) -> tuple[Any, ...]:
    """Return the parts of a label of several columns, or the label itself."""
    return key if isinstance(key, tuple) else (key,)
