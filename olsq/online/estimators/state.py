"""State of an estimator: initialise, copy, read, save and restore it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Call, Origin
from olsq.online.calls.checked import check_once
from olsq.online.conventions import Estimator
from olsq.online.files import frozen
from olsq.online.files.file_checks import check_loadable
from olsq.online.forms.form import Form
from olsq.online.forms.rows import clip_to, split_intercept
from olsq.online.forms.targets import Engine, TargetGroups
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.durations import Duration, half_life_duration
from olsq.online.rows.options import (
    check_forget,
    check_noise_variance,
    check_ridge,
    factors_of_rows,
    forget_or_half_life,
    plain_parameters,
)
from olsq.online.rows.times import Timing


class RowsLearned(TypedDict, total=False):
    """Attributes of an estimator that tell of the rows it has learned."""

    _residual: NDArray | None
    n_samples_seen_: int
    _log_weights: NDArray | None
    _timing: Timing | None
    _constant_values: NDArray | None


class EstimatorState(Estimator):
    """State of a streaming estimator, and what is read from any; subclasses define ``_start``."""

    forget: Any
    half_life: Any
    ridge: Any
    ridge_mode: str = "discounted"
    cov: str = "posterior"
    prior: Any = None
    noise_variance: Any = None
    n_samples_seen_: int
    metadata_: dict[str, Any]
    _engine: TargetGroups
    _origin: Origin
    _residual: NDArray | None
    _log_weights: NDArray | None
    ENGINE: ClassVar[Any]  # the kind of state, an Engine
    TIMED: ClassVar[str]  # the parameter that may be a length of time
    TAKES_COMPLEX: ClassVar[bool] = False  # rows; else they are refused
    _fewest = 0  # samples below which there is no estimate
    _constant_values: NDArray | None = None  # see calls/history.py
    _timing: Timing | None = None  # of the rows so far, if they are told apart by time

    # -- to be given by subclasses --------------------------------------------------------------

    def _start(self, origin: Origin) -> Engine:
        """Return the engine before any row."""
        raise NotImplementedError

    @property
    def _strategy(self) -> Forgetting | None:
        """The strategy that needs a form of its own; None where it weighs rows, or is a factor."""
        forget = self.forget
        return forget if isinstance(forget, Forgetting) and not forget.weights_rows else None

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        """Return the forgetting factors of rows: those of the call, or the estimator's own."""
        factors = self._own_factors()
        if forget is not None:
            check_forget(factors)  # what a call has of its own must not hide wrong parameters
            factors = forget
        return factors_of_rows(factors, n_rows)

    def _own_factors(self) -> Any:
        return forget_or_half_life(self.forget, self.half_life)

    def _duration(self, timed: bool) -> Duration | None:
        """Return the parameter ``TIMED`` as a length of time; None if it counts rows.

        ``timed`` says whether rows have times: a plain number may be either.
        """
        return half_life_duration(self.half_life, timed)

    def _half_life_in_time(self, timed: bool) -> Duration | None:
        """Return the half-life as a length of time; None if there is none, or it counts rows."""
        return self._duration(timed) if self.TIMED == "half_life" else None

    @property
    def _forgets_in_time(self) -> bool:
        """True if forgetting factors are computed from the times of rows."""
        in_time = self._half_life_in_time(self._timing is not None) is not None
        return in_time and not self._drifts_in_time

    @property
    def _drifts_in_time(self) -> bool:
        """True if coefficients drift by the times of rows."""
        return False

    def _timed_option(self) -> tuple[str, str]:
        """Return, for messages, the present value of the parameter ``TIMED`` and an example in
        time.
        """
        return f"{self.TIMED}={getattr(self, self.TIMED, None)!r}", f"{self.TIMED}='90D'"

    # -- beginning ------------------------------------------------------------------------------

    def _origin_of(self, call: Call) -> Origin:
        """Return the properties that the first rows fix."""
        d, m = call.complex_features or call.X.shape[1], call.Y.shape[1]
        ridge = self._start_ridge(d)
        dtype = np.dtype(np.float32 if np.real(call.X).dtype == np.float32 else np.float64)
        n_targets = 0 if call.one_target else m
        return self._make_origin(
            d,
            n_targets,
            dtype,
            ridge,
            names=call.names,
            targets=call.targets,
            is_complex=call.complex_features > 0,
        )

    def _start_ridge(self, n_features: int) -> NDArray[np.float64]:
        """Return the ridge (k,) of the state before any row, the intercept's zero first."""
        ridge = check_ridge(self.ridge, n_features)
        inputs.check_ridge_size(ridge)
        return np.concatenate([[0.0], ridge]) if self.fit_intercept else ridge

    def _make_origin(
        self,
        n_features: int,
        n_targets: int,
        dtype: np.dtype,
        ridge: NDArray,
        in_time: bool = False,
        names: NDArray | None = None,
        targets: tuple[str, ...] | None = None,
        is_complex: bool = False,
    ) -> Origin:
        """Build the origin of a state from these properties and the parameters.

        ``ridge`` (k,) is that of the coefficients; of complex ones both parts have it.
        """
        intercept = bool(self.fit_intercept)
        return Origin(
            n_features,
            n_targets,
            dtype,
            in_time,
            np.tile(ridge, 2) if is_complex else ridge,
            names,
            is_complex=is_complex,
            complex_intercept=intercept and is_complex,
            intercept=intercept and not is_complex,
            discounted=self.ridge_mode == "discounted",
            sandwich=self.cov == "sandwich",
            made_with=frozen.snapshot(self),
            targets=targets,
        )

    def _engine_of(self, origin: Origin, switch: Engine | None = None) -> TargetGroups:
        """Return the engine of all targets together: ``switch``, or that before any row."""
        switch = self._start(origin) if switch is None else switch
        return TargetGroups.together(switch, origin.columns, self.missing == "skip_target")

    def _settle(
        self,
        origin: Origin,
        engine: TargetGroups,
        metadata: dict[str, Any] | None = None,
        **rows_learned: Unpack[RowsLearned],
    ) -> None:
        """Replace the estimator's state; every fitted estimator is made here.

        ``rows_learned`` are the attributes that tell of the rows, if there were any.
        """
        dtype = origin.dtype
        dtype = np.result_type(dtype, np.complex64) if origin.is_complex else dtype
        no_rows: RowsLearned = {
            "_residual": np.empty((0, origin.columns), dtype),
            "n_samples_seen_": 0,
            "_log_weights": None,
            "_timing": None,
            "_constant_values": None,
        }
        self.__dict__.pop("feature_names_in_", None)
        names = {} if origin.names is None else {"feature_names_in_": origin.names}
        self.__dict__.update(  # all at once, so that an interrupt finds all or nothing
            {**no_rows, **names, **rows_learned},
            _origin=origin,
            _engine=engine,
            n_features_in_=origin.n_features,
            metadata_=metadata or {},
        )

    def _check_frozen(self) -> None:
        """Raise ValueError if a parameter is no longer what the state was made with."""
        frozen.check(self, self._origin.made_with)
        by_target = self._engine.parting
        if (self.missing == "skip_target") != by_target:
            old = "missing='skip_target'" if by_target else "another choice than 'skip_target'"
            kind = type(self).__name__
            raise ValueError(
                f"missing is {self.missing!r} now, but this {kind} has learned rows with {old}, "
                "which its state depends on: call fit to start anew, or set missing back"
            )

    def _no_values(self) -> NDArray[np.float64] | None:
        """Return the values of columns before any row; None where no intercept is looked for."""
        unasked = self.fit_intercept or self.prior is not None
        return None if unasked else np.empty(0)

    def _log_weight_sums(self) -> NDArray[np.float64]:
        """Return the forgotten log weights (m,) as numbers, zeros while all weights were 1."""
        return np.zeros(self._origin.columns) if self._log_weights is None else self._log_weights

    def _copied(self) -> dict[str, Any]:
        return {"_engine": self._engine.copy()} if hasattr(self, "_engine") else {}

    # -- reading -----------------------------------------------------------------------------------

    def _engine_or_raise(self) -> Any:
        if not hasattr(self, "_engine"):
            raise inputs.not_fitted(self)
        return self._engine

    def _form(self) -> Any:
        return self._engine_or_raise().form

    def _by_target(self, read: Callable[[Form], NDArray]) -> NDArray:
        """Return ``read`` of the form, (m, ...), by group where targets miss different rows."""
        with self._at_work():
            self._form()
            return self._engine.by_target(read)

    def _per_target(self, read: Callable[[Form], Any]) -> Any:
        """Return a value shared by all targets; one each with ``missing="skip_target"``."""
        with self._at_work():
            form = self._form()
            return self._engine.for_each(read) if self._has_targets_apart else read(form)

    @property
    def _has_targets_apart(self) -> bool:
        """True if each of several targets has a history of its own."""
        return self._engine.parting and self._origin.n_targets > 0

    def _real_theta(self) -> NDArray:
        """Return the coefficients (m, k) of the engine's rows, of both parts if complex."""
        return self._by_target(lambda form: form.coefficients())

    def _theta(self) -> NDArray:
        theta = self._real_theta()
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _coefficients(self) -> NDArray:
        """Return the coefficients (m, k) in the dtype of the data."""
        theta = clip_to(self._real_theta(), self._origin.dtype)
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _shaped(self, per_target: NDArray) -> Any:
        """Drop the target axis (the first) if y was one-dimensional."""
        return per_target[0] if self._origin.n_targets == 0 else per_target

    @property
    def _first(self) -> int:
        return self._origin.first

    def _known_noise(self, origin: Origin) -> NDArray[np.float64]:
        """Return the known variances (m,) of the engine's rows, inf where they are estimated."""
        noise = check_noise_variance(self.noise_variance, origin.columns)
        return noise / 2.0 if origin.is_complex else noise

    def _slopes(self) -> NDArray[np.floating]:
        """Return the coefficients (d,) or (m, d) without the intercept's."""
        return self._shaped(self._coefficients()[:, self._first :]).copy()

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or (m,); 0 without one."""
        return self._shaped(split_intercept(self._coefficients(), self._first)[1].copy())

    @property
    def n_held_(self) -> int:
        """Number of times wind-up protection held a coefficient that forgetting would have lost."""
        with self._at_work():
            self._form()
            return int(sum(form.held[0] for form in self._engine.forms))

    # -- saving ---------------------------------------------------------------------------------

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            self._engine_or_raise()
            checked = check_once(self, keep=False)
            header, arrays = self._written(metadata)
            if checked is None or checked.factor is None or metadata is not None:
                check_loadable(self, header)
            return header, {name: array.copy() for name, array in arrays.items()}

    def _written(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return header and arrays of the state file."""
        names = getattr(self, "feature_names_in_", None)
        header = {
            "estimator": type(self).__name__,
            "parameters": plain_parameters(self),
            "n_features": self.n_features_in_,
            "n_targets": self._origin.n_targets,
            "dtype": self._origin.dtype.name,
            "n_samples_seen": self.n_samples_seen_,
            "feature_names": None if names is None else list(names),
            "in_time": self._origin.in_time,
            "engine": self._engine.describe(),
            "metadata": metadata or {},
        }
        if self._origin.targets is not None:
            header["target_names"] = list(self._origin.targets)
        if self._timing is not None:
            header |= {"timing": list(self._timing[:3]), "zoned": self._timing.zoned}
        if self._origin.is_complex:
            header["complex"] = True
        arrays = self._engine.arrays() | {"full_ridge": self._origin.ridge}
        if self._residual is not None:
            arrays["last_residual"] = self._residual
            if self._origin.is_complex:  # real and imaginary part of a target beside each other
                arrays["last_residual"] = self._residual.view(self._origin.dtype)
        if self._log_weights is not None:
            arrays["log_weights"] = self._log_weights
        if self._constant_values is not None:
            arrays["constant_values"] = self._constant_values
        return header, arrays

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        names, is_complex = header["feature_names"], header.get("complex", False)
        ridge, residual = arrays["full_ridge"], arrays.get("last_residual")
        if is_complex:
            ridge = ridge[: ridge.size // 2]
            if residual is not None:
                residual = residual.view(np.result_type(residual.dtype, np.complex64))
        origin = self._make_origin(
            header["n_features"],
            header["n_targets"],
            np.dtype(header["dtype"]),
            ridge,
            header["in_time"],
            None if names is None else np.asarray(names, dtype=object),
            tuple(header["target_names"]) if "target_names" in header else None,
            is_complex,
        )
        engine = TargetGroups.restore(header["engine"], arrays, origin.columns, self.ENGINE.restore)
        self._settle(
            origin,
            engine,
            header["metadata"],
            _residual=residual,
            n_samples_seen_=header["n_samples_seen"],
            _log_weights=arrays.get("log_weights"),
            _constant_values=arrays.get("constant_values"),
            _timing=(
                Timing(*header["timing"], zoned=header.get("zoned")) if "timing" in header else None
            ),
        )
