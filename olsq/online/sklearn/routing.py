"""scikit-learn's metadata routing, for estimators that do not inherit from its classes.

https://scikit-learn.org/stable/metadata_routing.html; scikit-learn is imported when it asks.
"""

from __future__ import annotations

import copy
from typing import Any, Self

# What a meta-estimator may be asked to pass on, by method.
METADATA = {
    "fit": ("sample_weight", "times"),
    "partial_fit": ("sample_weight", "forget", "times"),
    "predict": ("return_std",),
    "score": ("sample_weight",),
}


class MetadataRouting:
    """Methods ``set_fit_request`` and the like, and how scikit-learn reads the requests."""

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
