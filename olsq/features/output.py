"""What transformers return: arrays, or frames with the features' names."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("default", "pandas", "polars")


def check(kind: str) -> None:
    """Refuse what is not one of the kinds."""
    if kind not in KINDS:
        raise ValueError(f"transform must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")


def chosen(own: str | None) -> str:
    """The builder's own choice, else that of scikit-learn's configuration where it is in use."""
    if own is not None:
        return own
    sklearn = sys.modules.get("sklearn")
    return "default" if sklearn is None else sklearn.get_config()["transform_output"]


def frame(kind: str, features: NDArray, names: NDArray[np.object_], index: Any) -> Any:
    """Features as a frame; pandas' has the index of the frame that came in."""
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(features, columns=names, index=index)
    import polars as pl

    return pl.DataFrame(features, schema=list(names), orient="row")
