"""The registry against the code: shapes of states, and flops against XLA's count.

XLA also counts what the masks for non-finite numbers cost, a few operations per number of the state
and of the arguments, which is why its count has some room above the registry's.
"""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.suites.attention_inputs import arguments, static
from olsq.attention.registry import BY_NAME, RULES

WINDOW, TOKENS, HEADS, WIDTH = 256, 16, 2, 32


@pytest.mark.slow
@pytest.mark.parametrize("rule", [r for r in RULES if r.one_token], ids=lambda r: r.name)
def test_state_and_cost_are_those_of_the_code(rule):
    arrays, named = arguments(rule.name, TOKENS, heads=HEADS, width=WIDTH)

    def state_of(arrays, named):
        return rule.function(*arrays, **named, **static(rule.name))[1]

    state = jax.eval_shape(state_of, arrays, named)
    shapes = [tuple(x.shape[2:]) for x in state]
    sizes = {"T": TOKENS, "w": WINDOW - 1}
    stated = [tuple(sizes.get(n, n) for n in s) for s in rule.state(WIDTH, WIDTH).values()]
    numbers = [
        s for s, x in zip(shapes, state, strict=True) if jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    if rule.name not in ("ttt_linear", "ttt_mlp"):  # those also count their tokens
        assert numbers == stated
    else:
        assert shapes == stated

    fixed = dict(static(rule.name))
    room = {"state": state}
    if hasattr(state, "grown"):
        room = jax.eval_shape(lambda state: {"state": state.grown(TOKENS + 1)}, state)
    if rule.name == "mesa_discounted":
        named.pop("ridge")
    timeless = ("rate", "bonus", "initial", "ridge")
    token = [x[:, -1] for x in arrays]
    options = {n: x if n in timeless or jnp.ndim(x) == 0 else x[:, -1] for n, x in named.items()}
    run = jax.jit(lambda x, named, room: rule.one_token(*x, **named, **fixed, **room))
    counted = run.lower(token, options, room).compile().cost_analysis()["flops"] / HEADS
    stated = rule.flop_count(WIDTH, WIDTH, TOKENS + 1, WINDOW)
    read = (
        sum(x.size for x in token) / HEADS + sum(x.size for x in jax.tree.leaves(options)) / HEADS
    )
    masked = rule.state_size(WIDTH, WIDTH, TOKENS + 1, WINDOW) + read
    # XLA also counts the branch that forms each query's system, taken where many steps do not do
    branch = 4 * WIDTH**3 if rule.name == "local_linear" else 0
    assert 0.9 * stated <= counted <= 3 * stated + 8 * masked + branch


def test_the_corners_of_the_map():
    corners = {}
    for rule in RULES:
        corners.setdefault(rule.corner, set()).add(rule.name)
    assert corners.pop(("global", "constant")) == {"rg_lru"}
    assert corners.pop(("local", "linear")) == {"local_linear", "parallax"}
    local = {"softmax", "sliding_window", "forgetting", "gsa"}
    assert corners.pop(("local", "constant")) == local
    assert list(corners) == [("global", "linear")]


def test_names_are_unique():
    assert len(BY_NAME) == len(RULES)
