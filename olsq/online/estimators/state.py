"""Lifecycle of an estimator's state: initialise, copy, save and restore."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Call, Origin
from olsq.online.files import frozen
from olsq.online.files.format import Saved
from olsq.online.forms.limits import state_dtype_name
from olsq.online.forms.targets import Engine, TargetGroups
from olsq.online.inference.coefficients import Inference
from olsq.online.rows import complex_rows, durations, inputs
from olsq.online.rows.durations import Duration
from olsq.online.rows.options import check_ridge
from olsq.online.rows.times import Timing
from olsq.online.sklearn import EstimatorConventions, FrameOutput
from olsq.problem import Moments

_STORED = {name: np.dtype(name) for name in ("float64", "float32")}


class StateHolder(EstimatorConventions, FrameOutput, Inference, Saved):
    """State handling of the streaming estimators; subclasses define ``_start`` and others."""

    ridge: Any
    state_dtype: Any
    fit_intercept: bool
    ENGINE: ClassVar[Any]  # the kind of state, an Engine
    # May change between rows: they decide what is done with the next row, not what the state is.
    CHANGEABLE: ClassVar[frozenset[str]] = frozenset(
        {"forget", "half_life", "missing", "noise_variance"}
    )
    TIMED: ClassVar[str]  # the parameter that may be a length of time
    TAKES_COMPLEX: ClassVar[bool] = False  # rows; else they are refused
    _fewest = 0  # samples below which there is no estimate
    _constant_values: NDArray | None = None  # see calls/constant_columns.py
    _timing: Timing | None = None  # of the rows so far, if they are told apart by time

    # -- to be given by subclasses ----------------------------------------------------------------

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _start(self, origin: Origin) -> Engine:
        """Return the engine before any row."""
        raise NotImplementedError

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        raise NotImplementedError

    def _duration(self, timed: bool) -> Duration | None:
        """Return the parameter ``TIMED`` as a length of time; None if it counts rows.

        ``timed`` says whether rows have times: a plain number may be either.
        """
        raise NotImplementedError

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

    # -- beginning --------------------------------------------------------------------------------

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
        inputs.check_ridge_size(ridge, self._stored)
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

    def _settle(
        self,
        origin: Origin,
        engine: TargetGroups,
        *,
        residual: NDArray | None,
        samples: int = 0,
        metadata: dict[str, Any] | None = None,
        logs: NDArray | None = None,
        timing: Timing | None = None,
        constant_values: NDArray | None = None,
    ) -> None:
        """Replace the estimator's state; every fitted estimator is made here."""
        self.__dict__.pop("feature_names_in_", None)
        names = {} if origin.names is None else {"feature_names_in_": origin.names}
        self.__dict__.update(  # all at once, so that an interrupt finds all or nothing
            _origin=origin,
            _engine=engine,
            _residual=residual,
            n_features_in_=origin.n_features,
            n_samples_seen_=samples,
            metadata_=metadata or {},
            _log_weights=logs,
            _timing=timing,
            _constant_values=constant_values,
            **names,
        )

    @property
    def _stored(self) -> np.dtype:
        """The dtype in which the state is stored between calls."""
        return _STORED[state_dtype_name(self.state_dtype)]

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
        known = self.fit_intercept or getattr(self, "prior", None) is not None
        return None if known else np.empty(0)

    def _log_weight_sums(self) -> NDArray[np.float64]:
        """Return the forgotten log weights (m,) as numbers, zeros while all weights were 1."""
        return np.zeros(self._origin.columns) if self._log_weights is None else self._log_weights

    def __copy__(self) -> Self:
        """Copy the estimator with a state of its own, so that the two streams stay independent."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__())
        if hasattr(self, "metadata_"):
            other.metadata_ = copy.deepcopy(self.metadata_)
        return other

    # -- saving -----------------------------------------------------------------------------------

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        self._engine_or_raise()
        with self._locked():
            self._check_frozen()
            header, arrays = self._written(metadata)
            return header, {name: array.copy() for name, array in arrays.items()}

    def _written(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return header and arrays of the state file."""
        names = getattr(self, "feature_names_in_", None)
        header = {
            "estimator": type(self).__name__,
            "parameters": {k: _plain(v, k) for k, v in self.get_params().items()},
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
            residual=residual,
            samples=header["n_samples_seen"],
            metadata=header["metadata"],
            logs=arrays.get("log_weights"),
            constant_values=arrays.get("constant_values"),
            timing=(
                Timing(*header["timing"], zoned=header.get("zoned")) if "timing" in header else None
            ),
        )


def _plain(value: Any, name: str) -> Any:
    """Convert a parameter to a value that JSON can hold."""
    if name == "prior" and complex_rows.prior_is_complex(value):
        return complex_rows.packed_prior(value)
    if isinstance(value, Moments):
        return {name: _plain(np.asarray(part), name) for name, part in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part, name) for part in value]
    if isinstance(value, Forgetting):
        return value.to_dict()
    value = durations.plain(value, name)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.dtype, type)):  # state_dtype
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value
