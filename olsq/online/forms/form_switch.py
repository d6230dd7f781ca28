"""The state of one stream: its form, the times of its rows, saving and merging."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.covariance import CovarianceState
from olsq.online.forms.factor.form import FactorForm, as_factor, as_root
from olsq.online.forms.form import SMALL, Form, copied
from olsq.online.forms.information import InformationForm
from olsq.online.forms.merging import merge_moments, merge_roots
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.rows.durations import half_life_gates

FORMS: dict[str, Any] = {
    kind.name: kind
    for kind in (FactorForm, SquareRootForm, CovarianceState, InformationForm, AdaptiveForm)
}
METHODS = ("covariance", "sqrt", "information")


def restore_form(description: dict[str, Any], arrays: dict[str, NDArray]) -> Form:
    """Rebuild the form from the results of :meth:`Form.describe` and :meth:`Form.arrays`."""
    return FORMS[description["form"]].restore(description["arguments"], arrays)


def resolve_method(method: str, state_dtype: str, ridge_mode: str) -> str:
    """Return the method that "auto" stands for."""
    if method != "auto":
        return method
    if state_dtype != "float64":
        return "sqrt"
    return "information" if ridge_mode == "fixed" else "covariance"


class FormSwitch:
    """The state of one stream."""

    FORM: ClassVar[Any] = FactorForm  # of a state in float64 that is not kept as moments

    def __init__(self, form: Form, method: str, span: NDArray | None = None) -> None:
        self.form = form
        # Times of the first and the last row that the state moved on in (see
        # ``forgetting_in_time``), or neither; None where times do not count.
        self.span = span
        self.method = method

    @classmethod
    def start(
        cls,
        method: str,
        ridge: NDArray,
        n_targets: int,
        *,
        intercept: bool,
        discounted: bool,
        solving: bool,
        precision: tuple[str, str],
        sandwich: bool = False,
    ) -> Self:
        form: Form
        if method == "information":
            form = InformationForm.start(
                ridge,
                n_targets,
                intercept=intercept,
                discounted=discounted,
                solving=solving,
                precision=precision,
                sandwich=sandwich,
            )
        else:
            kind = cls.FORM if precision[0] == "float64" else SquareRootForm
            form = kind.start(ridge, n_targets, intercept, precision, sandwich)
        return cls(form, method)

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
        return {"method": self.method} | self.form.describe()

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> Self:
        form, span = restore_form(description, arrays), arrays.get("span")
        form = as_factor(form) if cls.FORM is FactorForm else form
        return cls(form, description["method"], span)


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
    if isinstance(first.form, InformationForm) and isinstance(second.form, InformationForm):
        return FormSwitch(merge_moments(first.form, second.form), first.method)
    merged = merge_roots(as_root(first.form), as_root(second.form), ridge)
    held = isinstance(first.form, SquareRootForm)
    return FormSwitch(merged if held else as_factor(merged), first.method)
