"""Sparse columns of pandas, dense a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array

DENSE_UP_TO = 1 << 16  # entries that are made dense at once: what fits a core's cache


class SparseRows:
    """Rows (n, d) of a frame of sparse columns, in the place of an array.

    A part of the rows, by a slice or an array of numbers or truth values, is a dense array.  So are
    all of them where an array is needed.
    """

    ndim = 2

    def __init__(self, frame: Any) -> None:
        subtypes = {dtype.subtype for dtype in frame.dtypes}
        self.dtype = np.dtype(np.float32 if subtypes == {np.dtype(np.float32)} else np.float64)
        self.shape: tuple[int, int] = frame.shape
        self.size = frame.shape[0] * frame.shape[1]
        self.real = self
        self._rows = frame.sparse.to_coo().tocsr()

    @staticmethod
    def fits(data: Any) -> bool:
        """Test whether ``data`` is a large frame of sparse columns of numbers, 0 where empty."""
        if getattr(data, "sparse", None) is None:  # also lazy frames, whose dtypes cost a pass
            return False
        dtypes: Any = getattr(data, "dtypes", None)
        if not hasattr(dtypes, "__iter__"):
            return False
        return data.shape[0] * data.shape[1] > DENSE_UP_TO and all(
            getattr(dtype, "subtype", np.dtype(object)).kind in "biuf" and dtype.fill_value == 0
            for dtype in dtypes
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray:
        part = self._rows[rows].toarray().astype(self.dtype)
        return part[0] if np.ndim(rows) == 0 and not isinstance(rows, slice) else part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def finite_rows(self) -> NDArray[np.bool_]:
        """Mask (n,) of the rows without a missing or infinite value."""
        counts = np.diff(self._rows.indptr)
        lost = np.repeat(np.arange(len(self)), counts)[~np.isfinite(self._rows.data)]
        mask = np.ones(len(self), np.bool_)
        mask[lost] = False
        return mask


def rows_or_array(values: Any, name: str) -> Any:
    """Convert as :func:`real_array` does, but keep a large frame of sparse columns sparse."""
    return SparseRows(values) if SparseRows.fits(values) else real_array(values, name)
