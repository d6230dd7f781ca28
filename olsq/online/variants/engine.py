"""The square-root state of the variants, and the solution that was last read from it."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import NDArray

from olsq.online.forms import form_switch
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.rows import Rows, Trace


class VariantSwitch(FormSwitch):
    """A square-root state that remembers the last solution: the next search starts there.

    ``solution`` is a cache (what it was read for, what was read).  A solution depends on the state
    and the parameters alone, not on where its search began, but where constraints and rows leave
    coefficients undetermined: :class:`ConstrainedLeastSquares` writes it to its file.  ``fresh``
    says whether it is of the state as it is now.
    """

    solution: tuple[Any, Any] | None = None
    fresh = False
    recorder: Any = None  # of the call that wants a solution after every row

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        self.fresh = False
        if self.recorder is None:
            super().update(rows, residual, trace, times)
        else:
            self.recorder.learn(self, rows, residual)

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        """Return the state of this one's rows followed by other's."""
        both = form_switch.merge(self, other, ridge, half_life)
        return type(self)(both.form, both.method, both.clock, both.span)
