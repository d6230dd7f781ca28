"""The factor under a forgetting strategy that keeps a state of its own."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting, from_dict
from olsq.forgetting.entries import (
    BOUNDED,
    BREAKS,
    GATE,
    KNOWN,
    LAST_TRACE,
    N_MEMORY,
    PER_COEFFICIENT,
    RESET,
    ROWS,
    STATISTIC,
    VARIABLE,
    WALK,
    aside_shape,
)
from olsq.online.forms import adaptive_update as kernels
from olsq.online.forms import schema
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.limits import DOUBLE
from olsq.online.forms.rows import Rows, Trace, read_only


@dataclass(eq=False)
class AdaptiveForm(FactorForm):
    """The factor, with the state that the strategy ``forget`` keeps beside it.

    ``variances`` (m,) are the noise's, by target, for the strategies that estimate them; the
    entries of ``memory`` (7,) and ``aside`` are described in ``forgetting.entries``.
    """

    memory: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_MEMORY))
    variances: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    aside: Any = None  # an array, but while it is made
    _: KW_ONLY
    intercept: bool
    forget: Any  # a Forgetting, or what it was saved as
    precision: str = DOUBLE

    name: ClassVar[str] = "strategy"
    FIELDS: ClassVar[schema.Fields] = schema.STRATEGY
    ARGUMENTS: ClassVar[tuple[str, ...]] = ("intercept", "precision", "forget")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forget = from_dict(self.forget)
        if self.forget.code == PER_COEFFICIENT:
            # Rows whose entries differ in size by more would cancel in back substitution.
            self.limits = replace(self.limits, floor=1e-12)
        self.strategy = (
            int(self.forget.code),
            self.forget.options(),
            self.forget.vectors(self.D.size),
        )
        if self.aside is None:
            self.aside = np.zeros(aside_shape(self.forget.code, self.D.size, self.loss.size))

    @classmethod
    def of(cls, form: FactorForm, forget: Forgetting) -> AdaptiveForm:
        """Make a form that continues from a state; ValueError if sizes do not fit."""
        memory = np.zeros(N_MEMORY)
        memory[GATE] = 1.0
        adaptive = {"memory": memory, "variances": np.zeros(form.loss.size), "forget": forget}
        return cls(form.F, form.D, **form.shared, **adaptive)

    @property
    def drifts(self) -> bool:
        """True if coefficients drift before every row, whether it can be learned or not."""
        return self.strategy[0] == WALK

    def learns_in_steps(self, gate: float) -> bool:
        return not self.full_rank

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop; write their a-priori residuals and the trace."""
        t, factors, gates = start, None, np.empty(0)
        while t < stop:
            t, held, gate = kernels.update(
                self.in_kernels,
                (*self.strategy, self.memory, self.variances, self.aside),
                tuple(rows),  # whose gates are times elapsed, where coefficients walk; no factors
                (t, stop),
                self.limits.square_root,
                residual,
                trace.arrays,
            )
            self.held += held
            if t < stop:  # a new direction, or on a path while undetermined
                if factors is None:
                    gates = np.ones(rows.X.shape[0])
                    factors = rows._replace(gates=read_only(gates))
                gates[t] = gate
                share = self.take_undetermined(factors, t, residual)
                if trace.wanted:
                    trace.write(t, self)
                    trace.recursive[t] = math.sqrt(share) * residual[t]
                self.memory[LAST_TRACE] = 0.0
                if self.strategy[0] == PER_COEFFICIENT:
                    self.memory[KNOWN] = 0.0
                t += 1
        return stop

    def coefficients(self) -> NDArray:
        """Return theta (m, d), of minimum norm where undetermined."""
        if self.strategy[0] == PER_COEFFICIENT and self.memory[KNOWN] > 0:
            return self.aside.copy()
        return super().coefficients()

    def leverage(self, X: NDArray) -> NDArray:
        """Return ``x . P x`` (n,), of the next row's P where coefficients walk by a step a row."""
        leverage = super().leverage(X)
        if not self.drifts or self.forget.length is not None:
            return leverage
        return leverage + ((X @ self.strategy[2].T) ** 2).sum(1)

    def state(self) -> dict[str, Any]:
        """Return the strategy's own estimates, by name."""
        code = self.strategy[0]
        found: dict[str, Any] = {"window": self.forget.window_for(self.D.size)}
        if code in (VARIABLE, RESET, BOUNDED):
            found["factor"] = float(self.memory[GATE])
        if code not in (VARIABLE, RESET):
            return found
        given = self.forget.noise_variance
        known = given is not None or self.memory[ROWS] > 0
        sizes = np.full(self.variances.size, given) if given is not None else self.variances.copy()
        found["noise_variance"] = sizes if known else np.full(sizes.size, np.inf)
        if code == RESET:
            found["statistic"] = float(self.memory[STATISTIC])
            found["breaks"] = int(self.memory[BREAKS])
        return found

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        described["arguments"] |= {"forget": self.forget.to_dict()}
        return described
