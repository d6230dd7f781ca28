"""Dates as nanoseconds since 1970, whatever their unit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Beside dates, or lengths of time, of another unit an array gets theirs.
NO_DATE, NO_LENGTH = np.datetime64("NaT", "Y"), np.timedelta64("NaT", "W")
# Every date between these has its nanoseconds.  Days, since NumPy converts them to any unit.
_ENDS = np.array(["1677-12-31", "2262-04-11"], "datetime64[D]")


def nanoseconds(dates: NDArray, name: str = "times") -> NDArray[np.int64]:
    """Return dates (n,) as nanoseconds since 1970, NaT as the least integer.

    Raises ValueError, naming the first, for dates outside of the years that they hold.
    """
    if np.datetime_data(dates.dtype)[0] not in ("ns", "ps", "fs", "as", "generic"):
        first, last = _ENDS.astype(dates.dtype).astype(np.int64)
        counts = dates.astype(np.int64)
        outside = ((counts <= first) | (counts > last)) & ~np.isnat(dates)
        if outside.any():
            t = int(np.argmax(outside))
            raise ValueError(
                f"{name} must lie between the years 1678 and 2262 (they are held as nanoseconds), "
                f"got {dates[t]} in row {t}"
            )
    return dates.astype("datetime64[ns]").astype(np.int64)
