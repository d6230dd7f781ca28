"""Local least squares: one weighted linear regression per query, weighted towards nearby keys.

NumPy arrays are solved by :mod:`olsq.local.numpy`, without importing JAX, JAX arrays by
:mod:`olsq.local.jax`.
"""

from olsq.local.api import local_lstsq
from olsq.local.solution import LocalSolution

__all__ = ["LocalSolution", "local_lstsq"]
