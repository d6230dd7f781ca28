"""Blocks one by one and as a loop: time to compile a model, and of a step, by mixer and depth.

    python -m benchmarks.reports.depth mesa,4 gla,6      # prints; a minute for each

Processor time of loss and gradient on 4 x 512 tokens, 128 wide, 4 heads; the two ways take turns
and must give the same loss.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import olsq.nn
from olsq.nn import depth

WAYS = {"loop": depth._plan_loops, "one by one": lambda blocks, *_: iter([(0, len(blocks), 1)])}


def loss(model: Any, tokens: Any) -> Any:
    guess = jax.nn.log_softmax(model(tokens[:, :-1]))
    return -jnp.take_along_axis(guess, tokens[:, 1:, None], -1).mean()


def compiled(way: str, model: Any, tokens: Any) -> tuple[Any, float]:
    """The program of loss and gradient, and the seconds that it took to trace and compile."""
    depth._plan_loops = WAYS[way]
    start = time.process_time()

    def both(model: Any, tokens: Any) -> Any:  # a new one each time: JAX knows the old one's trace
        return eqx.filter_value_and_grad(loss)(model, tokens)

    program = eqx.filter_jit(both).lower(model, tokens).compile()
    return program, time.process_time() - start


def main() -> None:
    depth.LEAST = depth.LEAST_SOLVING = 2  # to see what a loop of any blocks would cost
    tokens = jax.random.randint(jax.random.key(1), (4, 513), 0, 256)
    for case in sys.argv[1:] or ["mesa,4"]:
        mixer, blocks = case.split(",")
        sizes = {"dim": 128, "blocks": int(blocks), "heads": 4, "key_size": 32}
        model = olsq.nn.LanguageModel(256, **sizes, mixer=mixer, key=jax.random.key(0))
        programs = {way: compiled(way, model, tokens) for way in WAYS}
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        losses = {}
        for _ in range(7):
            for way, (program, _) in programs.items():
                start = time.process_time()
                losses[way] = float(jax.block_until_ready(program(model, tokens)[0]))
                seconds[way].append(time.process_time() - start)
        for way, (_, compiling) in programs.items():
            step = 1e3 * min(seconds[way])
            print(f"{case} {way}: compile {compiling:.1f} s, step {step:.0f} ms", flush=True)
        assert abs(losses["loop"] - losses["one by one"]) < 1e-5, losses


if __name__ == "__main__":
    main()
