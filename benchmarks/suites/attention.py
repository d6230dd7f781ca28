"""asv: time, memory and error of every attention rule."""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.support.attention_inputs import arguments, one_head, runner
from olsq.attention.registry import RULES

NAMES = [rule.name for rule in RULES]


class Family:
    """One sequence of 4,096 tokens, 8 heads of width 64."""

    params = (NAMES, ["forward", "forward+backward"])
    param_names = ("rule", "mode")
    timeout = 600

    def setup(self, name, mode):
        self.args = arguments(name, 4096)
        f = runner(name)
        if mode == "forward":
            self.run = jax.jit(f)
        else:
            self.run = jax.jit(jax.grad(lambda x, named: (f(x, named) ** 2).sum(), argnums=(0, 1)))
        jax.block_until_ready(self.run(*self.args))

    def time_rule(self, *_):
        jax.block_until_ready(self.run(*self.args))

    def track_temporary_bytes(self, *_):
        return self.run.lower(*self.args).compile().memory_analysis().temp_size_in_bytes


class Error:
    """Largest error of one head against its float64 recurrence, relative to the largest output."""

    params = NAMES
    param_names = ("rule",)
    timeout = 600

    def track_error(self, name):
        arrays, named = arguments(name, 4096)
        got = np.asarray(jax.jit(runner(name))(arrays, named), np.float64)[0, :, 0]
        want = one_head(name, arrays, named)
        return float(np.abs(got - want).max() / np.abs(want).max())
