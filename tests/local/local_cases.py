"""One row for each kind of local least-squares problem; every test of the table runs on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

T, M = 37, 2  # not a whole number of blocks
ARRAYS = ("keys", "values", "queries", "ridge", "scale", "log_forget", "log_weight")


@dataclass(frozen=True)
class Row:
    """A kind of problem."""

    name: str
    d: int = 14  # above the features for which matrices are formed at once
    window: int | None = None
    causal: bool = True
    gates: bool = False  # gates, segments, log weights, a scale for each query

    def options(self):
        """Return the options that are not arrays."""
        return {"window": self.window, "causal": self.causal}

    def problem(self, seed=0, hard=True):
        """Three streams: (arrays, segment ids).

        The first is random.  If ``hard``, the second has keys that repeat or are 0 and a ridge of
        1e-4, and the third a scale of 64, a gate of 0 and keys that are left out.
        """
        rng = np.random.default_rng(seed)
        queries = T if self.causal else 29
        keys = rng.standard_normal((3, T, self.d))
        made = {
            "keys": keys,
            "values": rng.standard_normal((3, T, M)),
            "queries": rng.standard_normal((3, queries, self.d)),
            "ridge": rng.uniform(0.01, 0.1, (3, queries)),
            "scale": rng.uniform(0.2, 0.6, (3, queries if self.gates else 1)),
        }
        segments = None
        if self.gates or not self.causal:
            made["log_weight"] = rng.standard_normal((3, T))
        if self.gates:
            made["log_forget"] = np.log(rng.uniform(0.3, 1, (3, T)))
            segments = np.repeat([0, 1, 4], [9, 20, T - 29])
        if hard:
            keys[1] = keys[1, rng.integers(0, 3, T)]
            keys[1, ::5] = 0
            made["ridge"][1] = 1e-4
            made["scale"][2] = 64
            if "log_weight" in made:
                made["log_weight"][2, 3::4] = -np.inf
            if self.gates:
                made["log_forget"][2, 14] = -np.inf
        return made, segments


ROWS = (
    Row("causal"),
    Row("few features", d=3),
    Row("short window", window=6),
    Row("everything", window=20, gates=True),
    Row("all keys", causal=False),
)
