"""Return features as arrays, or as frames with the features' names."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("default", "pandas", "polars")


def check_kind(kind: str) -> None:
    """Raise ValueError if ``kind`` is not one of the kinds of output."""
    if kind not in KINDS:
        raise ValueError(f"transform must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")


def choose_kind(own: str | None) -> str:
    """Return the builder's own choice, or scikit-learn's configuration where that is imported."""
    if own is not None:
        return own
    sklearn = sys.modules.get("sklearn")
    return "default" if sklearn is None else sklearn.get_config()["transform_output"]


def make_frame(kind: str, features: NDArray, names: NDArray[np.object_], index: Any) -> Any:
    """Build a frame of features; for pandas with the index of the frame that was given."""
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(features, columns=names, index=index)
    import polars as pl

    return pl.DataFrame(features, schema=list(names), orient="row")
