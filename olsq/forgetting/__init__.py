"""Ways of forgetting: one small frozen object each, given to an estimator as ``forget=``.

``olsq.RecursiveLeastSquares(forget=olsq.forgetting.Directional(0.98))``.  Making one imports no
backend.  In the equations below ``R_t`` is the information matrix (``P_t = R_t^-1`` the covariance
in units of the noise's variance), ``theta_t`` the coefficients, ``w_t`` the row's weight; a bar
marks what a strategy has made of the state before the row is learned:

    R_t = Rbar_t + w_t x_t x_t^T        theta_t = thetabar_t + w_t P_t x_t (y_t - x_t . thetabar_t)

No strategy moves a coefficient: ``thetabar_t = theta_{t-1}``.
"""

from olsq.forgetting.base import Forgetting
from olsq.forgetting.by_covariance import BoundedTrace, RandomWalk
from olsq.forgetting.by_direction import Directional, ExponentialResetting, PerCoefficient
from olsq.forgetting.by_error import ResetOnBreak, Variable
from olsq.forgetting.by_row import ByTime, Exponential, Stabilised

__all__ = [
    "BoundedTrace",
    "ByTime",
    "Directional",
    "Exponential",
    "ExponentialResetting",
    "Forgetting",
    "PerCoefficient",
    "RandomWalk",
    "ResetOnBreak",
    "Stabilised",
    "Variable",
]
