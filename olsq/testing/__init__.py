"""Property tests for users' own parts: hypothesis strategies for streams, and checks.

What scikit-learn's ``check_estimator`` is to estimators, :func:`check_solver` is to solvers of
whole sequences, :func:`check_rule` to attention rules and :func:`check_estimator_stream` to
streaming estimators.  Needs the extra ``testing``.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'olsq.testing needs {error.name}: pip install ".[testing]" in a checkout of olsq',
        name=error.name,
    ) from error

from olsq.testing.estimator_check import check_estimator_stream
from olsq.testing.estimator_subject import Problem
from olsq.testing.kinds import INTERRUPTIONS, KINDS, Interruption, Stream, interruption
from olsq.testing.rule_check import check_rule
from olsq.testing.solver_check import check_solver
from olsq.testing.strategies import Regression, gates, regressions, ridges, streams

__all__ = [
    "INTERRUPTIONS",
    "KINDS",
    "Interruption",
    "Problem",
    "Regression",
    "Stream",
    "check_estimator_stream",
    "check_rule",
    "check_solver",
    "gates",
    "interruption",
    "regressions",
    "ridges",
    "streams",
]
