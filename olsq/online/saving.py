"""Loading what an estimator saved."""

from __future__ import annotations

import os

from olsq.online import statefile
from olsq.online.base import StreamingRegressor
from olsq.online.estimator import RecursiveLeastSquares
from olsq.online.rolling import RollingLeastSquares

_ESTIMATORS: dict[str, type[StreamingRegressor]] = {
    kind.__name__: kind for kind in (RecursiveLeastSquares, RollingLeastSquares)
}


def load(path: str | os.PathLike[str]) -> StreamingRegressor:
    """Load an estimator that was saved with its ``save`` method.

    Parameters
    ----------
    path : path
        A state file (layout: ``olsq.online.statefile``).

    Returns
    -------
    RecursiveLeastSquares or RollingLeastSquares
        It continues bit for bit as the saved one would have.  Its ``metadata_`` is the dictionary
        given to ``save``.

    Raises
    ------
    StateFileError
        If the file is truncated, damaged, not a state file, or of a newer format.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import os, tempfile, numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares().fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> name = os.path.join(tempfile.mkdtemp(), "run.olsq")
    >>> est.save(name, metadata={"rows": 3})
    >>> olsq.load(name).metadata_
    {'rows': 3}
    """
    header, arrays = statefile.read(path)
    kind = _ESTIMATORS.get(header["estimator"])
    if kind is None:
        raise statefile.StateFileError(
            f"{os.fspath(path)} holds a {header['estimator']!r}, which this olsq does not know"
        )
    estimator = kind(**header["parameters"])
    estimator._restore(header, arrays)
    return estimator
