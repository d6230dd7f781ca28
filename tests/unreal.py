"""Values that are no array of real numbers, though a cast would make one of most of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def records(x):
    out = np.zeros(np.shape(x), [("number", float)])
    out["number"] = x
    return out


# kind -> array of its numbers; every one keeps the shape
KINDS = {
    "complex": lambda x: np.asarray(x) + 1j,
    "complex64": lambda x: (np.asarray(x) + 1j).astype(np.complex64),
    "complex of JAX": lambda x: jnp.asarray(np.asarray(x) + 1j, jnp.complex64),
    "text": lambda x: np.asarray(x).astype(str),
    "bytes": lambda x: np.asarray(x).astype("S"),
    "dates": lambda x: np.full(np.shape(x), np.datetime64("2020-01-01")),
    "durations": lambda x: np.full(np.shape(x), np.timedelta64(1, "s")),
    "objects": lambda x: np.asarray(x).astype(object),
    "records": records,
}
SCALARS = {
    "complex": 1j,
    "text": "0.5",
    "bytes": b"0.5",
    "date": np.datetime64("2020-01-01"),
    "duration": np.timedelta64(1, "s"),
    "a list": [1j],
    "text in a list": ["0.5"],
    "nothing": [None],
    "a key": jax.random.key(0),
}
