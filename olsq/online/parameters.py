"""The parameters that several estimators have, with their defaults and checks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from olsq.arrays.checks import check_choice
from olsq.online.conventions import Estimator
from olsq.online.forms.form_switch import METHODS


@dataclass(eq=False, repr=False, match_args=False)
class FilterParameters(Estimator):
    """Parameters of least squares over all rows: of one filter, of a bank, or by group."""

    _: KW_ONLY
    forget: Any = 1.0
    half_life: Any = None
    ridge: Any = 0.0
    fit_intercept: bool = True
    method: str = "auto"
    missing: str = "skip"
    cov: str = "posterior"
    prior: Any = None
    noise_variance: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.method, "method", ("auto", *METHODS))
        check_cov(self.cov)
        if self.prior is not None and self.cov == "sandwich":
            raise ValueError(
                "prior and cov='sandwich' cannot be combined: a prior is no noisy row; use "
                "cov='posterior'"
            )


@dataclass(eq=False, repr=False, match_args=False)
class VariantParameters(Estimator):
    """Parameters of every variant, which adds its own."""

    _: KW_ONLY
    forget: Any = 1.0
    half_life: Any = None
    fit_intercept: bool = True
    missing: str = "skip"


@dataclass(eq=False, repr=False, match_args=False)
class WindowParameters(Estimator):
    """Parameters of a rolling window, or of one for each key."""

    CHANGEABLE: ClassVar[frozenset[str]] = Estimator.CHANGEABLE | {"min_samples"}

    window: Any = 250
    min_samples: int | None = None
    _: KW_ONLY
    ridge: Any = 0.0
    fit_intercept: bool = True
    missing: str = "skip"
    window_of: str | None = None
    noise_variance: Any = None
    forget: Any = 1.0
    half_life: Any = None


def check_cov(cov: object) -> None:
    """Raise ValueError for an unknown choice of ``cov=``, and why HC0 to HAC are none."""
    if isinstance(cov, str) and cov.lower() in ("hac", "newey-west", "nw"):
        raise ValueError(
            f"cov={cov!r} is not offered: Newey-West weighs the residuals of all rows at the "
            "present coefficients, which a stream of bounded memory no longer has (exact sums "
            "would take O(d^4) numbers a lag). Use 'sandwich', or give the rows to "
            "cov_params(kind='hac', lags=, data=(X, y)); with window= they are offered."
        )
    if isinstance(cov, str) and cov.lower() in ("hc0", "hc1", "hc2", "hc3"):
        raise ValueError(
            f"cov={cov!r} weighs the residuals of all rows at the present coefficients, which only "
            "a window still has: give window=, or the rows to cov_params("
            f"kind={cov!r}, data=(X, y)); 'sandwich' is for forgetting"
        )
    check_choice(cov, "cov", ("posterior", "sandwich"))
