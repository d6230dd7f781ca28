"""Outside of ``jax.jit``: a loop whose step is a closure would be compiled at every call, and kept.

A process that calls a rule some thousand times would run out of room for programs.
"""

from __future__ import annotations

import jax
import pytest
from attention_cases import ROWS, arrays_of, call, timed, window

from tests.tiers import leading

# One row for each recurrence.
LED = {
    "linear", "gla vector", "gsa", "log_linear_mamba2", "gated_delta", "kda", "mamba", "rg_lru",
    "ttt_linear", "softmax", "forgetting", "sliding_window", "local_linear", "parallax",
    "mesa_channel", "mesa_window",
}  # fmt: skip


@pytest.fixture
def compiled():
    """A list with an entry for every program that JAX compiled or loaded since."""
    events = []

    def listen(event, _, **__):
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda x: x + len(events))(1.0)
    assert events  # it hears
    return events


def anew(compiled, f, *args):
    """Count the programs that a second call of ``f`` compiled; the first compiled some."""
    jax.block_until_ready(f(*args))
    before = len(compiled)
    jax.block_until_ready(f(*args))
    return len(compiled) - before


def streams(row):
    arrays = window(row, arrays_of(row)[0], 2)
    return {name: jax.numpy.asarray(a) for name, a in arrays.items()}


@pytest.mark.slow
@leading(ROWS, LED)
def test_derivatives_are_compiled_once(row, compiled):
    def loss(arrays):
        return call(row, arrays)[0].sum()

    assert anew(compiled, jax.grad(loss), streams(row)) == 0


@pytest.mark.slow  # tokens go through the same recurrences
@pytest.mark.parametrize("row", [row for row in ROWS if row.causal], ids=str)
def test_tokens_are_compiled_once(row, compiled):
    arrays = streams(row)
    names = timed(row, arrays)
    one = {name: a[:, 0] if name in names else a for name, a in arrays.items()}
    _, state = call(row, one, step=True)

    def token(one):
        return call(row, one, state, step=True)[0]

    assert anew(compiled, token, one) == 0
    assert anew(compiled, jax.grad(lambda one: token(one).sum()), one) == 0
