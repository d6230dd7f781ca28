"""Panels: one regression for the rows of all groups, from the states of the groups.

A group's state holds a triangular factor R of its rows, the intercept's column first, with
``z = R theta`` and the sum of squared residuals about its own theta.  Where no row has been
forgotten and there is no ridge, that is all that a regression of all groups needs:

    pooled   the rows [R_g z_g] of all groups are a factor of all rows
    within   those below the intercept's are a factor of the rows about the means of their group,
             and nothing has been subtracted
    cluster  u_g = R_g^T (z_g - R_g beta),   V = c H^-1 (sum_g u_g u_g^T) H^-1,
             c = G / (G - 1) (N - 1) / (N - k)

(Arellano 1987 for the within estimator; Cameron & Miller 2015 for the factor c.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.inference import scaled_covariance, without_undetermined
from olsq.online.forms.counting import COUNT, COUNT_SQUARED, DECAY, WEIGHT
from olsq.online.forms.factor.form import FactorForm, noise_levels
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import counts_of, objective_of
from olsq.online.many.bank import FilterBank
from olsq.online.many.panel_fit import PanelFit, panel_fit
from olsq.online.many.state import READ_AT_ONCE

COVARIANCES = ("nonrobust", "cluster")


class Panel:
    """The factors of the groups of a bank that have rows, none forgotten and without a ridge.

    ``filters`` (G,) are the groups that have rows; R (G, k, k) and z (G, m, k) their factors.

    Raises ValueError, for the method ``name``, where their states do not hold the moments of their
    rows.
    """

    def __init__(self, bank: FilterBank, n_groups: int, name: str) -> None:
        self.kind, self.state = bank._kind, bank._state
        tally = self.state.tally[:n_groups]
        if self.state.ridge[:n_groups].any() or bank.prior is not None:
            option = "ridge" if bank.prior is None else "prior"
            raise ValueError(
                f"{name} needs groups without a ridge or prior, which would count once for every "
                f"group: learn the rows with {option}={0.0 if option == 'ridge' else None}"
            )
        if (tally[:, DECAY] != 1).any():
            raise ValueError(
                f"{name} needs groups that have forgotten nothing, so that all rows count alike: "
                "learn the rows with forget=1 and no half_life, or pass a column of weights as "
                "sample_weight"
            )
        self.filters = np.flatnonzero(tally[:, COUNT] > 0)
        self.n_rows = int(tally[:, COUNT].sum())
        self.weight = float(tally[:, WEIGHT].sum())
        self.R, self.z = self.state.factors(self.filters)

    def factors(self, within: bool) -> tuple[NDArray, NDArray, NDArray]:
        """Return R (G, k, k), z (G, m, k) and the sums of squared residuals (G, m) of the rows.

        ``within``: of the rows about the means of their groups, without the intercept.
        """
        loss = self.state.loss[self.filters]
        if not within:
            return self.R, self.z, loss
        # A column or target of one value in a group has no deviations but those of rounding.
        total, deviations = (np.linalg.norm(self.R[:, i:, 1:], axis=1) for i in (0, 1))
        varies = deviations > self.noise[:, None] * total
        targets_vary = self.target_squares() > 0
        z = self.z[:, :, 1:] * targets_vary[:, :, None]
        return self.R[:, 1:, 1:] * varies[:, None], z, loss * targets_vary

    @property
    def noise(self) -> NDArray[np.float64]:
        """The relative rounding errors (G,) of the factors."""
        limits, tally = self.kind.limits.square_root, self.state.tally[self.filters]
        return noise_levels(limits, self.R.shape[1], tally)

    def target_squares(self) -> NDArray[np.float64]:
        """Compute the targets' sums of squares (G, m) about the groups' means (about 0 without an
        intercept), 0 where they may be rounding errors.
        """
        first = int(self.kind.intercept)
        squares = (self.z[:, :, first:] ** 2).sum(axis=2) + self.state.loss[self.filters]
        about_zero = squares + (self.z[:, :, :first] ** 2).sum(axis=2)
        return np.where(squares > self.noise[:, None] ** 2 * about_zero, squares, 0.0)

    def form_of_all_rows(self, R: NDArray, z: NDArray, loss: NDArray, within: bool) -> FactorForm:
        """Return the state of all groups' rows, given their factors."""
        (_, m, k), intercept = z.shape, self.kind.intercept and not within
        form = FactorForm.start(np.zeros(k), m, intercept)
        pieces = (slice(i, i + READ_AT_ONCE) for i in range(0, len(R), READ_AT_ONCE))
        for piece in pieces:
            rows = _as_rows(R[piece], z[piece])
            form.absorb(rows, np.empty(rows.Y.shape), Trace.none(m, k))
        form.loss += loss.sum(axis=0)
        # As after the rows themselves; each mean of a group takes one.
        form.tally[[COUNT, COUNT_SQUARED]] = self.n_rows - within * self.filters.size
        form.tally[WEIGHT] = self.weight
        return form

    def effects(self, theta: NDArray, n_groups: int) -> NDArray[np.float64]:
        """Compute the intercepts (n_groups, m) of the groups, given the coefficients (m, d)."""
        intercepts = np.full((n_groups, theta.shape[0]), np.nan)
        intercepts[self.filters] = (self.z[:, :, 0] - self.R[:, 0, 1:] @ theta.T) / self.R[:, :1, 0]
        return intercepts


def _as_rows(R: NDArray, z: NDArray) -> Rows:
    """Return the rows of some factors R (b, k, k) and z (b, m, k) as rows to learn."""
    X = np.ascontiguousarray(R).reshape(-1, R.shape[2])
    Y = np.ascontiguousarray(z.transpose(0, 2, 1)).reshape(len(X), -1)
    return Rows.of(X, Y, np.ones(len(X)), np.ones(len(X)))


def fit_panel(
    groups: Any, bank: FilterBank, cov: str, within: bool, effects: str = "group"
) -> PanelFit:
    """Fit one regression to the rows of all groups, pooled or within groups.

    Raises ValueError as :meth:`GroupedLeastSquares.within`.
    """
    name = "within" if within else "pooled"
    _check_covariance(cov)
    _check_effects(effects)
    if within and not bank.fit_intercept:
        raise ValueError(
            "within needs the means of the groups, and these were learned with "
            "fit_intercept=False: learn the rows with fit_intercept=True"
        )
    panel = Panel(bank, len(groups), name)
    R, z, loss = panel.factors(within)
    form = panel.form_of_all_rows(R, z, loss, within)
    theta, k = form.coefficients(), form.D.size
    nothing = np.zeros(k)
    counts, n_groups = counts_of(form, nothing, True), panel.filters.size
    noise = bank._known_noise()
    with np.errstate(divide="ignore", invalid="ignore"):
        sigma2 = form.loss / counts.freedom if counts.freedom > 0 else np.full(noise.size, np.inf)
    sigma2 = np.where(np.isfinite(noise), noise, sigma2)
    freedom = math.inf if bank.noise_variance is not None else counts.freedom
    unknown = ~form.determined()
    if cov == "cluster":
        if n_groups < 2:
            raise ValueError(
                f"cov='cluster' needs at least two groups with rows, got {n_groups}: use "
                "cov='nonrobust'"
            )
        freedom, left = n_groups - 1.0, panel.n_rows - form.rank
        factor = math.inf if left <= 0 else n_groups / freedom * (panel.n_rows - 1) / left
        scores = np.swapaxes(
            (z - theta @ np.swapaxes(R, 1, 2)) @ R, 0, 1
        )  # X_g^T (y_g - X_g theta)
        roots, _ = form.whitened(scores.reshape(-1, k))
        pulls = form.unwhitened(roots).reshape(noise.size, n_groups, k)
        products, scale = np.swapaxes(pulls, 1, 2) @ pulls, np.full(noise.size, factor)
    else:
        roots, _ = form.whitened(np.eye(k))
        products, scale = np.repeat((roots @ roots.T)[None], noise.size, axis=0), sigma2
    for each in products:
        without_undetermined(each, unknown)
    V = scaled_covariance(products, scale[:, None, None])
    squares = [objective_of(form, i, nothing, True) for i in range(noise.size)]
    r_squared = [1 - residual / total if total > 0 else math.nan for residual, total in squares]
    means = panel.effects(theta, len(groups)) if within else None
    names = groups._coefficient_names()[int(within) :]
    lost = [(j, names[j]) for j in np.flatnonzero(unknown)]
    return panel_fit(
        intercept=form.intercept,
        title=f"{type(groups).__name__}.{name}: {len(groups.keys()):,} groups",
        names=names,
        errors="by group" if cov == "cluster" else "nonrobust",
        theta=theta,
        V=V,
        one_target=bank._n_targets == 0,
        freedom=freedom,
        sigma2=sigma2,
        r_squared=np.array(r_squared),
        n_rows=panel.n_rows,
        n_groups=int(n_groups),
        groups=groups.keys(),
        effects=means,
        notes=[_undetermined(name, form.columns[0, j], within) for j, name in lost],
    )


def _undetermined(name: str, square: float, within: bool) -> str:
    """Say why the rows do not determine a coefficient whose column has this sum of squares."""
    if square > 0:
        return f"{name}: undetermined; the rows do not tell it from the others."
    return f"{name}: undetermined; it is {'constant in every group' if within else '0 everywhere'}."


def _check_covariance(cov: Any) -> None:
    if isinstance(cov, str) and cov in COVARIANCES:
        return
    if isinstance(cov, str) and cov.lower() in ("unadjusted", "iid", "homoskedastic"):
        hint = "use 'nonrobust'"
    elif isinstance(cov, str) and "cluster" in cov.lower():
        hint = "use 'cluster', by the labels that the rows were learned with"
    else:
        hint = (
            "errors by another key, by two keys or of single rows weigh every row's residual, and "
            "groups keep no rows. cov='cluster' is robust within groups; to cluster by another "
            "key learn the rows with by= that key"
        )
    raise ValueError(f"cov must be 'nonrobust' or 'cluster', got {cov!r}: {hint}")


def _check_effects(effects: Any) -> None:
    if isinstance(effects, str) and effects == "group":
        return
    raise ValueError(
        f"effects must be 'group', got {effects!r}: effects of a second key (two-way effects) need "
        "several passes over the rows. Where it has few values, as years have, give X a column of "
        "0 and 1 for each but one of them; else demean the rows first"
    )
