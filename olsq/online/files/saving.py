"""Save states as files and as bytes: a mixin for all estimators."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from olsq.online.files import format as files


class Saved:
    """Methods ``save`` and ``to_bytes``, which write what ``_snapshot`` returns."""

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
        files.write(path, *self._snapshot(metadata))

    def to_bytes(self, *, metadata: dict[str, Any] | None = None) -> bytes:
        """Return the whole state as bytes, for a database or a queue; :func:`olsq.loads` resumes.

        They are those of the file that :meth:`save` would write, with its checksum; errors are its.
        The same state and metadata give the same bytes.

        Parameters
        ----------
        metadata : dict, optional
            Anything JSON can hold; comes back as ``metadata_``.  The offset of the last row learnt,
            say, so that the state and what it has seen are stored in one piece.

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
        return files.packed(*self._snapshot(metadata))
