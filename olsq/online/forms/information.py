"""States in files of earlier versions that hold the moments of the rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import schema
from olsq.online.forms.factor.fixed_ridge import FixedRidgeForm
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.moment_factor import factor, tally_of
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import DECAY

EPS = float(np.finfo(np.float64).eps)
PLACES = {name: f"past_{name}" for name in schema.SQUARE_ROOT}  # in files


class InformationState:
    """The moments H (d, d) and G (m, d) of a file, which become a triangular factor.

    A file may also hold a square-root form of all rows, ``past_...``, which has the digits that
    the moments have lost.
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
        form = FactorForm.of_root(SquareRootForm.restore(shared, own))
        if discounted or not ridge.any():
            return form
        return FixedRidgeForm(form, ridge, arguments["solving"])


def _root_of(arrays: dict[str, NDArray], discounted: bool) -> dict[str, NDArray]:
    """Return the arrays of the square-root form of moments, and of a ridge that is forgotten.

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
