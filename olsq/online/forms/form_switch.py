"""The state of one stream: its form, the times of its rows, saving and merging."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.earlier import (
    AdaptiveState,
    CovarianceState,
    InformationState,
    SquareRootState,
)
from olsq.online.forms.factor.fixed_ridge import FixedRidgeForm
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.form import SMALL, Form, copied
from olsq.online.forms.merging import merge_factors
from olsq.online.forms.rows import Rows, Trace
from olsq.online.rows.durations import half_life_gates

FORMS: dict[str, Any] = {
    kind.name: kind
    for kind in (
        FactorForm,
        FixedRidgeForm,
        SquareRootState,
        CovarianceState,
        InformationState,
        AdaptiveForm,
        AdaptiveState,
    )
}
METHODS = ("covariance", "sqrt", "information")  # names of one thing, kept for old programs


def restore_form(description: dict[str, Any], arrays: dict[str, NDArray]) -> Form:
    """Rebuild the form from the results of :meth:`Form.describe` and :meth:`Form.arrays`."""
    return FORMS[description["form"]].restore(description["arguments"], arrays)


class FormSwitch:
    """The state of one stream."""

    def __init__(self, form: Form, span: NDArray | None = None) -> None:
        self.form = form
        # Times of the first and the last row that the state moved on in (see
        # ``forgetting_in_time``), or neither; None where times do not count.
        self.span = span

    @classmethod
    def start(
        cls,
        ridge: NDArray,
        n_targets: int,
        *,
        intercept: bool,
        discounted: bool,
        solving: bool,
        precision: str,
        sandwich: bool = False,
    ) -> Self:
        forgotten = ridge if discounted else np.zeros_like(ridge)
        form = FactorForm.start(forgotten, n_targets, intercept, precision, sandwich)
        return cls(form if discounted else read_with(form, ridge, solving))

    def copy(self) -> Self:
        return copied(self)

    @property
    def advances_on_missing(self) -> bool:
        return isinstance(self.form, AdaptiveForm) and self.form.drifts

    @property
    def rows_in_place(self) -> int:
        return int(self.form.columns.shape[1] ** 2 >= SMALL)

    def learns_in_steps(self, gate: float) -> bool:
        return self.form.learns_in_steps(gate)

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        """Absorb all rows in order; the effect of their ``times`` is already in the gates."""
        self.form.absorb(rows, residual, trace)

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        """Return every array of the state, by name."""
        span = {} if self.span is None else {"span": self.span}
        return self.form.arrays() | span

    def describe(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs besides the arrays."""
        return self.form.describe()

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> Self:
        form, span = restore_form(description, arrays), arrays.get("span")
        return cls(form, span)


def read_with(form: Any, ridge: NDArray, solving: bool) -> Any:
    """Return the state of the rows of a form with a ridge (k,) that is not forgotten."""
    return FixedRidgeForm(form, ridge, solving) if ridge.any() else form


def without_ridge(form: Any, ridge: NDArray) -> Any:
    """Return the state of the rows alone of a form that has learned a ridge like rows."""
    nothing = np.zeros_like(ridge)
    sandwich = form.spread.size > 0
    empty = FactorForm.start(nothing, form.loss.size, form.intercept, form.precision, sandwich)
    return merge_factors(empty, form, ridge)


def merge(
    first: FormSwitch, second: FormSwitch, ridge: NDArray, half_life: float | None = None
) -> FormSwitch:
    """Return the state of first's rows followed by second's.

    With a ``half_life`` in time first forgets what passes until second's first row.
    """
    gate = 1.0 if half_life is None else gate_between(first, second, half_life)
    merged = _merged(first if gate == 1 else _forgotten(first, gate), second, ridge)
    merged.span = span_of_both(first, second)
    return merged


def span_of_both(first: Any, second: Any) -> NDArray | None:
    """Return the times of the first and the last row of two states; None where none is timed."""
    spans = [state.span for state in (first, second) if state.span is not None]
    if not spans:
        return None
    learned = np.concatenate(spans)
    return learned[[0, -1]] if learned.size else learned


def gate_between(first: Any, second: Any, half_life: float) -> float:
    """Return the gate between first's last row and second's first; 1 if either has none."""
    if first.span is None or second.span is None or not (first.span.size and second.span.size):
        return 1.0
    return half_life_gates(second.span[:1], None, first.span, half_life).item()


def _forgotten(switch: FormSwitch, gate: float) -> FormSwitch:
    """Copy the state and forget by this factor, as a row of weight 0 does."""
    other, (m, d) = switch.copy(), switch.form.coefficients().shape
    rows = Rows.of(np.zeros((1, d)), np.zeros((1, m)), np.array([gate]), np.zeros(1))
    other.update(rows, np.empty((1, m)), Trace.none(m, d))
    return other


def _merged(first: FormSwitch, second: FormSwitch, ridge: NDArray) -> FormSwitch:
    if np.isinf(second.form.loss).any():
        raise ValueError(
            "cannot merge: the second estimator began from moments, and how much they had "
            "forgotten is not known; merge both as moments, olsq.merge(a.moments(), b.moments(), "
            "forget=...)"
        )
    a: Any = first.form
    b: Any = second.form
    if not isinstance(a, FixedRidgeForm):
        return FormSwitch(merge_factors(a, b, ridge))
    rows = b.data if isinstance(b, FixedRidgeForm) else b
    both = merge_factors(a.data, rows, np.zeros_like(ridge))
    return FormSwitch(FixedRidgeForm(both, a.ridge, b.solving if rows is not b else a.solving))
