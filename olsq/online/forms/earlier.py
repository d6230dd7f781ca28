"""States in files of earlier versions, which become factors when they are loaded.

A file holds P and the coefficients, R and z, or the moments of the rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.entries import RESET
from olsq.online.forms import schema
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.counting import DECAY
from olsq.online.forms.factor.fixed_ridge import FixedRidgeForm
from olsq.online.forms.factor.form import FactorForm, factor_of
from olsq.online.forms.moment_factor import factor, tally_of

COVARIANCE = 1  # how files of banks name the form of a filter
EPS = float(np.finfo(np.float64).eps)
PLACES = {name: f"past_{name}" for name in schema.SQUARE_ROOT}  # in files


class CovarianceState:
    """The arrays P (d, d) and theta (m, d) of a file, which become a triangular factor."""

    name: ClassVar[str] = "covariance"

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> FactorForm:
        """Return the state as a factor."""
        R, z = square_root_of(arrays["P"], arrays["theta"])
        return SquareRootState.restore(arguments, arrays | {"R": R, "z": z})


def square_root_of(P: NDArray, theta: NDArray) -> tuple[NDArray, NDArray]:
    """Compute R (..., d, d) upper triangular with ``R^T R = P^-1``, and ``z = R theta``.

    By the spectral decomposition of P, scaled to a unit diagonal: rounding errors in P cannot make
    it fail.
    """
    scale = np.sqrt(np.diagonal(P, axis1=-2, axis2=-1))
    values, vectors = np.linalg.eigh(P / scale[..., None, :] / scale[..., :, None])
    eps = np.finfo(np.float64).eps
    root = np.sqrt(np.maximum(values, values[..., -1:] * eps))
    # P = D V L V^T D (D the scale): the rows L^(-1/2) V^T D^(-1) have the product P^(-1)
    rows = np.swapaxes(vectors, -1, -2) / root[..., :, None] / scale[..., None, :]
    R: NDArray = np.linalg.qr(rows)[1]
    R *= np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., :, None]
    # A column that no row has excited is correlated with none: rounding must not say that it is.
    alone = np.count_nonzero(P, axis=-1) == 1
    R[alone[..., :, None] | alone[..., None, :]] = 0.0
    diagonal = np.arange(P.shape[-1])
    R[..., diagonal, diagonal] += np.where(alone, 1.0 / scale, 0.0)
    return np.ascontiguousarray(R), theta @ np.swapaxes(R, -1, -2)


class SquareRootState:
    """The arrays R (d, d), with ``R^T R`` the information, and z (m, d) with ``R theta = z``."""

    name: ClassVar[str] = "sqrt"

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> FactorForm:
        """Return the state as a factor."""
        F, D = factor_of(arrays["R"], arrays["z"])
        return FactorForm.restore(arguments, arrays | {"F": F, "D": D})


class AdaptiveState:
    """R and z as above, with what a strategy keeps beside them."""

    name: ClassVar[str] = "adaptive"

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> AdaptiveForm:
        """Return the state as a factor, with the strategy's own."""
        F, D = factor_of(arrays["R"], arrays["z"])
        form = AdaptiveForm.restore(arguments, arrays | {"F": F, "D": D})
        if form.forget.code == RESET and "aside" in arrays:  # the state of a trial
            (m, d), trial = arrays["z"].shape, arrays["aside"][0]
            R, z = trial[: d * d].reshape(d, d), trial[d * d : d * (d + m)].reshape(m, d)
            parts = (*factor_of(R, z), trial[d * (d + m) :])
            form.aside = np.concatenate([part.ravel() for part in parts])[None]
        return form


class InformationState:
    """The moments H (d, d) and G (m, d) of a file, which become a triangular factor.

    A file may also hold R and z of all rows, ``past_...``, which have the digits that the moments
    have lost.
    """

    name: ClassVar[str] = "information"

    @classmethod
    def restore(
        cls, arguments: dict[str, Any], arrays: dict[str, NDArray]
    ) -> FactorForm | FixedRidgeForm:
        """Return the state as a factor, with the ridge beside it if that is not forgotten."""
        ridge, discounted = arrays["ridge"], arguments["discounted"]
        own = {name: arrays[place] for name, place in PLACES.items() if place in arrays}
        if not own:
            own = _root_of(arrays, discounted)
        # The past counts neither its squared weights nor, after a gap, its rows as they were.
        own |= {"spread": arrays["spread"], "held": arrays["held"]}
        shared = {name: arguments[name] for name in ("intercept", "precision")}
        form = SquareRootState.restore(shared, own)
        if discounted or not ridge.any():
            return form
        return FixedRidgeForm(form, ridge, arguments["solving"])


def _root_of(arrays: dict[str, NDArray], discounted: bool) -> dict[str, NDArray]:
    """Return R, z and the counters of moments, and of a ridge that is forgotten.

    Where moments and ridge leave columns that rows have excited undetermined, rounding errors must
    not pass for information.  The tally counts more rows for them, and the loss is unknown then, as
    after ``RecursiveLeastSquares.from_moments``.
    """
    H, G, tally = arrays["H"], arrays["G"], arrays["tally"]
    ridge = tally[DECAY] * arrays["ridge"] if discounted else np.zeros_like(arrays["ridge"])
    gram = H + np.diag(ridge)
    R, z, error, _ = factor(gram, G, EPS)
    loss = np.maximum(arrays["squares"] - (z**2).sum(1), 0.0)
    lengths = np.diagonal(gram)
    unknown = (np.diagonal(R) == 0) & (lengths > 0)
    if unknown.any() and not discounted:
        unknown &= np.diagonal(factor(H + np.diag(arrays["ridge"]), G, EPS)[0]) == 0
    if unknown.any():
        tally, loss = tally_of(error, tally), np.full_like(loss, np.inf)
    excited = np.maximum(arrays["columns"][1] + ridge, lengths)
    columns = np.array([np.maximum(lengths, 0.0), excited])
    return {"R": R, "z": z, "columns": columns, "tally": tally, "loss": loss}
