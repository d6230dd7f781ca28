"""Choose the forgetting factor and ridge from the data, by the one-step-ahead squared loss."""

from olsq.tuning.api import tune
from olsq.tuning.result import Curve, Mixture, Tuning

__all__ = ["Curve", "Mixture", "Tuning", "tune"]
