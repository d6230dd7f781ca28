"""Base class of the variants, which share the plain estimator's engine and solve it differently."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online.calls.call import Call, Origin
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.forms.minimum_norm import clean_dependent_columns
from olsq.online.forms.rows import Rows
from olsq.online.parameters import VariantParameters
from olsq.online.paths.path import CoefficientPath
from olsq.online.variants.engine import Recorder, VariantSwitch
from olsq.online.variants.steps import DONE, WAITING
from olsq.threads import threads_for

# Attributes of the plain estimators that a variant lacks, and why.
_ERRORS = "the standard errors of least squares do not hold for its estimate"
_RANK = "what data determine is not a matter of least squares' coefficients here"
LACKS = {"determined_": _RANK, "rank_": _RANK} | dict.fromkeys(
    (
        *("predict_interval", "leverage", "cov_params", "t_test", "wald_test", "summary"),
        *("sample_coef", "sigma2_", "coef_stderr_", "intercept_stderr_"),
    ),
    _ERRORS,
)


class Variant(VariantParameters, StreamingRegressor):
    """Base of the variants: rows go to a factor, which each variant solves in its own way.

    Subclasses give the parameters and ``_solve(engine)``, the coefficients (m, k) of the state,
    and ``_asked()``, the parameters that these depend on (they may change between rows).
    """

    ENGINE: ClassVar[Any] = VariantSwitch
    TIMED = "half_life"
    MISSING: ClassVar[tuple[str, ...]] = ("skip", "raise")
    LACKS: ClassVar[dict[str, str]] = LACKS
    RESIDUALS: ClassVar[bool] = False  # whether learning a row gives its a-priori residual
    WALK_SOLVES: ClassVar[bool] = False  # whether a walk leaves all that a solution does
    ridge: Any = 0.0

    def __getattr__(self, name: str) -> Any:
        if (reason := self.LACKS.get(name)) is not None:
            raise AttributeError(f"{type(self).__name__} has no {name}: {reason}")
        return object.__getattribute__(self, name)  # raises what brought us here

    # -- to be given by subclasses ----------------------------------------------------------------

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        """Compute coefficients (m, k), the intercept's first where there is one."""
        raise NotImplementedError

    # A walk over rows with a solution after each (see ``engine``), by the variants that have one.
    _walk: Any = None

    def _asked(self) -> Any:
        """Return what a solution depends on besides the state; compared by ``==``."""
        return None

    # -- learning ---------------------------------------------------------------------------------

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
        times: Any = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        Returns
        -------
        CoefficientPath
            ``sigma2``, ``stderr``, ``intercept_stderr`` and ``recursive_residual`` are NaN: those
            of least squares do not hold.

        Raises
        ------
        NotImplementedError
            Where the estimator has no coefficients that a row changes alone (robust and kernel
            least squares): loop over :meth:`step`.
        ValueError, TypeError
            As :meth:`partial_fit`.

        Notes
        -----
        A solution a row, in one compiled loop, which takes a third of the time of :meth:`step` or
        less for 8 coefficients.  O(n m d) memory.
        """
        if self._walk is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no path: loop over the rows with step or partial_fit, "
                "and read coef_ after each"
            )
        return super().partial_fit_path(X, y, sample_weight, forget=forget, times=times)

    def _learn(self, *args: Any, **kwargs: Any) -> CoefficientPath | None:
        with self._locked():
            path = None
            if kwargs.pop("want_path"):
                path = self._recorded(*args, **kwargs)
            else:
                super()._learn(*args, want_path=False, **kwargs)
            if not self.RESIDUALS and hasattr(self, "_engine"):
                self._residual = None
            return path

    def _learn_row(
        self, rows: Rows, errors: NDArray, *, predicts: bool
    ) -> tuple[Any, NDArray] | None:
        if self.RESIDUALS or not predicts:
            return super()._learn_row(rows, errors, predicts=predicts)
        engine: Any = self._engine.engine
        before = self._solution(engine)
        prediction = rows.X.dot(before.T)
        if not (self.WALK_SOLVES and self._learns_and_solves(engine, rows, errors, before.shape)):
            super()._learn_row(rows, errors, predicts=False)
        return prediction, rows.Y - prediction

    def _learns_and_solves(
        self, engine: Any, rows: Rows, errors: NDArray, shape: tuple[int, ...]
    ) -> bool:
        """Learn a row and solve for the next prediction in one kernel; False where it waits."""
        engine.fresh = False
        ended, _ = self._walk(engine, rows, 0, errors, np.empty((1, *shape)))
        engine.fresh = ended == DONE
        return ended != WAITING

    _recorder: Recorder | None = None  # while a path is being learned

    def _recorded(self, *args: Any, **kwargs: Any) -> CoefficientPath:
        """Learn, and return the path of the solutions."""
        recorder = Recorder(self._walk, functools.partial(Variant._solution, self))
        began, before = "_engine" in self.__dict__, None
        engines: list[Any] = []
        if began:
            self._check_parameters()
            engines = [group.engine for group in self._engine.groups]
            before = self._join_targets([Variant._solution(self, engine) for engine in engines])
            recorder.size = before.shape[1]
        self._recorder = recorder
        for engine in engines:
            engine.recorder = recorder
        try:
            super()._learn(*args, want_path=False, **kwargs)
            origin, groups = self._origin, self._engine.groups
            engines += [group.engine for group in groups]
            if before is None:
                before = np.zeros((origin.columns, recorder.size))
            return recorder.path(groups, before, origin.intercept, origin.dtype)
        finally:
            del self._recorder
            if "_engine" not in self.__dict__:
                self.__dict__.pop("_origin", None)
            for engine in engines:
                engine.recorder = None

    def _check_call(self, *args: Any) -> Call:
        call = super()._check_call(*args)
        if self._recorder is not None:
            self._recorder.call = call
        return call

    def _walked(
        self,
        kernel: Any,
        engine: Any,
        rows: Rows,
        start: int,
        residual: NDArray,
        problem: Any,
        out: NDArray,
    ) -> tuple[int, int]:
        """Run a kernel's walk; the solution before the row where it ended starts the next one."""
        form = engine.form
        ended, t, held = kernel(
            (form.in_kernels, form.spread_in_kernels, bool(form.intercept)),
            tuple(rows),
            start,
            form.limits.square_root,
            residual,
            problem,
            out,
        )
        if held:
            form.held += held
        if t > start:
            engine.solution = self._asked(), out[t - 1].copy()
        return ended, t

    def _start(self, origin: Origin) -> Any:
        return self._start_of_size(origin, origin.ridge)

    def _start_of_size(self, origin: Origin, ridge: NDArray[np.float64]) -> Any:
        """Return the engine before any row, with as many columns as ``ridge`` (k,)."""
        engine = self.ENGINE.start(
            ridge,
            origin.columns,
            intercept=origin.intercept,
            discounted=True,
            solving=True,
            precision=origin.dtype.name,
        )
        if self._recorder is not None:
            self._recorder.size = origin.ridge.size
            engine.recorder, self._origin = self._recorder, origin  # which solutions need at once
        return engine

    # -- reading ----------------------------------------------------------------------------------

    @property
    def residual_(self) -> Any:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        if not self.RESIDUALS:
            self._engine_or_raise()
            raise AttributeError(
                f"{type(self).__name__} has no residual_: each row's would take a solution of its "
                "own; step(x, y) returns them one by one"
            )
        return super().residual_

    def _real_theta(self) -> NDArray[np.float64]:
        self._engine_or_raise()
        with self._locked():
            self._check_parameters()
            groups = self._engine.groups
            parts = [self._solution(group.engine) for group in groups]
            return self._join_targets(parts)

    def _join_targets(self, parts: list[NDArray]) -> NDArray:
        """Join what was read of each group of targets, in the order of the targets."""
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([group.targets for group in self._engine.groups]))
        return np.concatenate(parts)[order]

    def _solution(self, engine: Any) -> NDArray[np.float64]:
        """Return the coefficients of an engine, computed once for a state and the parameters."""
        asked = self._asked()
        solved_for, theta = engine.solution or (None, np.empty(0))
        # Targets that part take the solution of all along: too many rows.
        if not (engine.fresh and solved_for == asked and len(theta) == engine.form.loss.size):
            with threads_for(*engine.form.F.shape):
                theta = self._solve(engine)
            engine.solution, engine.fresh = (asked, theta), True
        return theta


def centred(form: Any, intercept: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return R (d, d) and z (m, d) of the slopes, with the intercept at its best for them.

    The first row of the factor is all that knows of the intercept, which fits it exactly.  What a
    constant column has below that row is rounding error, and taken out.
    """
    first = int(intercept)
    R, z = form.R, form.z
    clean_dependent_columns(R, float(form._noise))
    # Kernels are compiled for one layout.
    return np.array(R[first:, first:], order="C"), np.array(z[:, first:], order="C")


def with_intercept(form: Any, slopes: NDArray[np.float64], intercept: bool) -> NDArray[np.float64]:
    """Prepend to the slopes (m, d) the intercept that belongs to them: coefficients (m, k)."""
    if not intercept:
        return slopes
    R, z = form.R, form.z
    theta = np.empty((len(slopes), R.shape[0]))
    theta[:, 1:] = slopes
    theta[:, 0] = (z[:, 0] - slopes @ R[0, 1:]) / R[0, 0] if R[0, 0] != 0 else 0.0
    return theta
