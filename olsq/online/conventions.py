"""Base of all estimators: parameters and routing by scikit-learn's conventions, a lock, files.

https://scikit-learn.org/stable/metadata_routing.html; scikit-learn is imported when it asks.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import MOST_CHARACTERS, brief
from olsq.arrays.checks import check_choice, check_flag
from olsq.online.files import format as state_file
from olsq.online.rows.frames import names_or_numbers
from olsq.threads import threads_for

# What a meta-estimator may be asked to pass on, by method.
METADATA = {
    "fit": ("sample_weight", "times"),
    "partial_fit": ("sample_weight", "forget", "times"),
    "predict": ("return_std",),
    "score": ("sample_weight",),
}


@functools.cache
def _signature(cls: type) -> dict[str, inspect.Parameter]:
    """Return the constructor's parameters, cached since every call of an estimator needs them."""
    return {name: p for name, p in inspect.signature(cls).parameters.items() if name != "self"}


class Parameters:
    """Parameters by name, and a repr, for classes that only store parameters."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(_signature(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name (``deep`` is there for scikit-learn)."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor; ValueError for a name it does not have."""
        for name, value in params.items():
            if name not in self._parameter_names():
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                    f"{self._parameter_names()!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = _signature(type(self))
        changed = [
            f"{name}={_short(value)}"
            for name, value in self.get_params().items()
            if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def from_options(kind: type[Any], options: dict[str, Any]) -> Any:
    """Make an object of those of the options that are parameters of its class."""
    names = _signature(kind)
    return kind(**{name: value for name, value in options.items() if name in names})


def _short(value: Any) -> str:
    """Return the repr of a parameter, or what it is where that takes lines."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS and "\n" not in text else brief(value)


class Estimator(Parameters):
    """A regressor with a state: scikit-learn's tags and routing, a lock, and files.

    The state is changed and read under the lock, which copies do not share.
    """

    _estimator_type = "regressor"
    # May change between rows: they decide what is done with the next row, not what the state is.
    CHANGEABLE: ClassVar[frozenset[str]] = frozenset(
        {"forget", "half_life", "missing", "noise_variance"}
    )
    MISSING: ClassVar[tuple[str, ...]] = ("skip", "raise", "skip_target")  # choices of ``missing``
    missing: str
    fit_intercept: bool
    n_features_in_: int
    metadata_: dict[str, Any]

    def _check_parameters(self) -> None:
        """Raise ValueError or TypeError for a parameter out of range."""
        check_choice(self.missing, "missing", self.MISSING)
        check_flag("fit_intercept", self.fit_intercept)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(allow_nan=self.missing != "raise"),
            regressor_tags=RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_engine")

    def _coefficient_names(self) -> list[str]:
        """Return the names of the coefficients, the intercept's first if there is one."""
        names = names_or_numbers(getattr(self, "feature_names_in_", None), self.n_features_in_)
        return ["Intercept", *names] if self.fit_intercept else names

    # -- metadata routing -------------------------------------------------------------------------

    def set_fit_request(
        self,
        *,
        sample_weight: bool | str | None = "$UNCHANGED$",
        times: bool | str | None = "$UNCHANGED$",
    ) -> Self:
        """Ask meta-estimators to pass ``sample_weight`` or ``times`` on to ``fit``.

        Parameters
        ----------
        sample_weight, times : bool, str or None
            True: pass it on; False: do not; None: raise an error if it is given; a name: pass on
            what is given by that name.

        Returns
        -------
        self

        Raises
        ------
        RuntimeError
            Unless ``sklearn.set_config(enable_metadata_routing=True)``.
        """
        return self._request("fit", sample_weight=sample_weight, times=times)

    def set_partial_fit_request(
        self,
        *,
        sample_weight: bool | str | None = "$UNCHANGED$",
        forget: bool | str | None = "$UNCHANGED$",
        times: bool | str | None = "$UNCHANGED$",
    ) -> Self:
        """Ask meta-estimators to pass metadata on to ``partial_fit``; see
        :meth:`set_fit_request`."""
        requests = {"sample_weight": sample_weight, "forget": forget, "times": times}
        return self._request("partial_fit", **requests)

    def set_predict_request(self, *, return_std: bool | str | None = "$UNCHANGED$") -> Self:
        """Ask meta-estimators to pass ``return_std`` on to ``predict``; see
        :meth:`set_fit_request`."""
        return self._request("predict", return_std=return_std)

    def set_score_request(self, *, sample_weight: bool | str | None = "$UNCHANGED$") -> Self:
        """Ask meta-estimators to pass ``sample_weight`` on to ``score``; see
        :meth:`set_fit_request`."""
        return self._request("score", sample_weight=sample_weight)

    def get_metadata_routing(self) -> Any:
        """Return the requests made so far, a ``sklearn.utils.metadata_routing.MetadataRequest``."""
        return self._get_metadata_request()

    def _request(self, method: str, **requests: Any) -> Self:
        from sklearn import get_config

        if not get_config().get("enable_metadata_routing", False):
            raise RuntimeError(
                "This method is only available when metadata routing is enabled. You can enable it "
                "using sklearn.set_config(enable_metadata_routing=True)."
            )
        every = self._get_metadata_request()
        for name, alias in requests.items():
            if alias != "$UNCHANGED$":
                getattr(every, method).add_request(param=name, alias=alias)
        self._metadata_request = every
        return self

    def _get_metadata_request(self) -> Any:
        made = self.__dict__.get("_metadata_request")
        if made is not None:
            return copy.deepcopy(made)
        from sklearn.utils.metadata_routing import MetadataRequest

        every = MetadataRequest(owner=type(self).__name__)
        for method, names in METADATA.items():
            for name in names:
                getattr(every, method).add_request(param=name, alias=None)
        return every

    # -- the lock ---------------------------------------------------------------------------------

    def _locked(self) -> threading.RLock:  # type: ignore[reportInvalidTypeForm]
        """Return the lock to hold while the state is changed or read."""
        lock = self.__dict__.get("_lock")
        # setdefault is atomic, so that two threads get one lock; it is no parameter, so not made
        # in __init__.
        return lock if lock is not None else self.__dict__.setdefault("_lock", threading.RLock())

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Hold the lock, and for a large state one BLAS thread, while it is read."""
        with self._locked(), threads_for(1, self._columns()):
            yield

    def _columns(self) -> int:
        """Return how many columns the state's matrices have, about."""
        return getattr(self, "n_features_in_", 0)

    # -- copies -----------------------------------------------------------------------------------

    def _copied(self) -> dict[str, Any]:
        """Return copies of the attributes that two estimators must not share, by name."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copy, with arrays of its own and without the lock."""
        with self._at_work():
            state = self.__dict__ | self._copied()
        for name in ("_lock", "_checked_parameters"):
            state.pop(name, None)
        return state

    def __copy__(self) -> Self:
        """Copy the estimator with a state of its own, so that the two streams stay independent."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__())
        if "metadata_" in other.__dict__:
            other.metadata_ = copy.deepcopy(other.metadata_)
        return other

    # -- files ------------------------------------------------------------------------------------

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return header and arrays of the state now, independent of later rows."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the whole state to one file, atomically; :func:`olsq.load` resumes bit for bit.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only after the new one is on disk.
        metadata : dict, optional
            Anything JSON can hold; comes back as ``metadata_``.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            If a parameter is no longer what the state was made with.
        TypeError
            If JSON cannot hold the metadata, or a key of :class:`olsq.GroupedLeastSquares` is not
            text, a number, a boolean or a tuple of these: a date takes its text as label instead.
        OSError
            If the file cannot be written; an existing one is untouched then.
        """
        state_file.write(path, *self._snapshot(metadata))

    def to_bytes(self, *, metadata: dict[str, Any] | None = None) -> bytes:
        """Return the whole state as bytes, for a database or a queue; :func:`olsq.loads` resumes.

        They are those of the file that :meth:`save` would write, with its checksum; errors are its.
        The same state and metadata give the same bytes.

        Parameters
        ----------
        metadata : dict, optional
            Anything JSON can hold; comes back as ``metadata_``.  The offset of the last row
            learned, say, so that the state and what it has seen are stored in one piece.

        Returns
        -------
        bytes

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares().fit(np.eye(3), [1.0, 2.0, 3.0])
        >>> again = olsq.loads(est.to_bytes(metadata={"offset": 3}))
        >>> again.metadata_, bool((again.coef_ == est.coef_).all())
        ({'offset': 3}, True)
        """
        return state_file.packed(*self._snapshot(metadata))


def locked(method: Callable[..., Any]) -> Any:
    """Decorate a method so that no other thread changes or reads the state meanwhile."""

    @functools.wraps(method)
    def alone(self: Estimator, *args: Any, **kwargs: Any) -> Any:
        with self._locked():
            return method(self, *args, **kwargs)

    return alone


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return value is default
    return type(value) is type(default) and value == default
