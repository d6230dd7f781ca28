"""The state of a bank before any row, made from its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array
from olsq.online.files import frozen
from olsq.online.forms.moments import factor_for, switch_from_prior
from olsq.online.many.rows import check_number
from olsq.online.many.state import BankState, Kind
from olsq.online.parameters import FilterParameters
from olsq.online.rows import inputs
from olsq.online.rows.options import (
    check_forget,
    check_noise_variance,
    forget_from_half_life,
    forget_or_half_life,
)


class BankMaking(FilterParameters):
    """Checks of a bank's size, and the states that it starts from."""

    METHODS = ("covariance", "sqrt")
    MISSING = ("skip", "raise")
    n: int
    n_features: int | None

    def _forget(self, which: Any) -> NDArray:
        """Return the bank's own factors: a number, or one for each of the filters ``which``."""
        lengths = {"forget": self.forget, "half_life": self.half_life}
        for name, value in lengths.items():
            if np.ndim(value) and np.shape(value) != (int(self.n),):
                raise ValueError(
                    f"{name} must be a number or one number per filter ({self.n}), got an array "
                    f"of shape {np.shape(value)}"
                )
        if np.ndim(self.half_life):
            forget_or_half_life(self.forget, 1.0)  # refuses both
            half_lives = real_array(self.half_life, "half_life").tolist()
            gates = np.array([forget_from_half_life(length) for length in half_lives])
        else:
            factors = forget_or_half_life(self.forget, self.half_life, in_time=False)
            gates = check_forget(factors)
        return gates if which is None or gates.ndim == 0 else gates[which]

    def _check_parameters(self) -> None:
        check_number(self.n, "n")
        if self.n_features is not None:
            check_number(self.n_features, "n_features")
        super()._check_parameters()

    def _check_ranges(self, n_targets: int) -> None:
        """Raise ValueError or TypeError for a parameter that no row can be learned with."""
        self._check_parameters()
        self._forget(None)
        check_noise_variance(self.noise_variance, max(n_targets, 1))

    # -- the state --------------------------------------------------------------------------------

    def _begin(self, d: int, n_targets: int, dtype: np.dtype, is_complex: bool = False) -> None:
        """Set the state to that before any row."""
        kind = self._kind_of(dtype, is_complex)
        self._settle(self._fresh(kind, d, n_targets), kind, d, n_targets, dtype)

    def _fresh(self, kind: Kind, d: int, n_targets: int, n: int | None = None) -> BankState:
        """Return the state of all filters before any row, or of n like the first."""
        ridge = self._full_ridge(d)
        inputs.check_ridge_size(ridge)
        ridge = ridge if n is None else np.repeat(ridge[:1], n, axis=0)
        if kind.is_complex:  # both parts have it
            ridge = np.tile(ridge, (1, 2))
        if self.prior is None:
            return BankState.start(kind, ridge, max(n_targets, 1), self.cov == "sandwich")
        shape = max(n_targets, 1), ridge.shape[1]
        R, z = factor_for(self.prior, kind.intercept, kind.is_complex, shape)
        switch = switch_from_prior(R, z, intercept=kind.intercept, precision=kind.precision)
        one = BankState.start(kind, ridge[:1], z.shape[0])
        one.set_switch(0, switch, 0)
        one.values[:] = 0.0  # of the rows behind a prior nothing is known
        return one.take(np.zeros(ridge.shape[0], np.int64))

    def _kind_of(self, dtype: np.dtype, is_complex: bool = False) -> Kind:
        intercept = self.fit_intercept
        return Kind(
            bool(intercept) and not is_complex,
            True,
            dtype.name,
            is_complex,
            bool(intercept) and is_complex,
        )

    def _full_ridge(self, d: int) -> NDArray[np.float64]:
        """Return the ridge (n, k) of every filter, the intercept's zero first."""
        ridge = real_array(self.ridge, "ridge").astype(np.float64, copy=False)
        n, first = int(self.n), int(bool(self.fit_intercept))
        if ridge.shape not in ((), (d,), (n, d)):
            raise ValueError(
                f"ridge must be a number, an array ({d},) or an array ({n}, {d}), got an array of "
                f"shape {ridge.shape}"
            )
        if not (np.isfinite(ridge).all() and (ridge >= 0).all()):
            raise ValueError(f"ridge must be finite and >= 0, got {shown(self.ridge)}")
        full = np.zeros((n, d + first))
        if self.prior is None:  # else it takes the ridge's place
            full[:, first:] = ridge
        return full

    def _settle(
        self,
        state: BankState,
        kind: Kind,
        d: int,
        n_targets: int,
        dtype: np.dtype,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.__dict__.update(
            _state=state,
            _kind=kind,
            _n_targets=n_targets,
            _dtype=np.dtype(dtype),
            _made_with=frozen.snapshot(self),
            _residual=None,
            n_features_in_=d,
            metadata_=metadata or {},
        )
