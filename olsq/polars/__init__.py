"""Polars expressions: ``import olsq.polars`` registers the namespace ``olsq`` of ``pl.Expr``.

``pl.col("y").olsq.rls("a", "b", forget=0.99)`` is a regression of y on a and b inside a query: in
``select``, ``with_columns``, ``over``, ``group_by(...).agg`` and lazy frames.  The numbers are
those of :func:`olsq.coefficient_path` on the same rows.  Polars comes with the extra ``polars``.
"""

try:
    import polars as _polars  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'olsq.polars needs {error.name}: pip install ".[polars]" in a checkout of olsq',
        name=error.name,
    ) from error

from olsq.polars.namespace import LeastSquares

__all__ = ["LeastSquares"]
