"""Every attention rule: time forward and backward, and its compiled temporaries."""

from __future__ import annotations

import jax

from .common import need, ratio

RULES = [
    "softmax", "sliding_window", "forgetting", "gsa", "linear", "retention", "mamba2",
    "log_linear_mamba2", "mamba3", "gla", "hgrn2", "rwkv6", "mamba", "mlstm", "delta",
    "gated_delta", "gated_delta_product", "kda", "comba", "momentum_delta", "rwkv7",
    "longhorn", "preconditioned_delta", "kalman_delta", "rg_lru", "ttt_linear", "ttt_mlp", "mesa",
    "mesa_discounted", "mesa_channel", "mesa_window", "kalman", "intention", "local_linear",
    "parallax",
]  # fmt: skip
LENGTH, HEADS, WIDTH = 512, 2, 32


def compiled(name: str, mode: str):
    """A jitted rule and its arguments."""
    need("olsq.attention.registry", "olsq.reference.attention_solved", f"olsq.attention.{name}")
    from .attention_inputs import arguments, runner

    args = arguments(name, LENGTH, HEADS, WIDTH)
    rule = runner(name)
    if mode == "forward":
        return jax.jit(rule), args
    return jax.jit(jax.grad(lambda x, named: (rule(x, named) ** 2).sum(), argnums=(0, 1))), args


class Rules:
    """One sequence of 512 tokens, 2 heads of width 32, float32."""

    params = (RULES, ["forward", "forward+backward"])
    param_names = ("rule", "mode")
    timeout = 600

    def setup(self, rule: str, mode: str) -> None:
        self.run, self.args = compiled(rule, mode)
        self.time_rule()

    def time_rule(self, *_) -> None:
        jax.block_until_ready(self.run(*self.args))

    def track_over_gla(self, rule: str, mode: str) -> float:
        """Over gated linear attention in the same mode."""
        run, args = compiled("gla", mode)
        return ratio(self.time_rule, lambda: jax.block_until_ready(run(*args)))

    track_over_gla.unit = "ratio of processor time"
