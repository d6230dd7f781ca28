"""Outside of ``jax.jit``: a call is one program, and values of other calls do not compile again.

A process that calls a rule some thousand times would run out of room for programs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, arrays_of, call, timed, window

import olsq
from olsq import attention
from olsq.sequence.jax import programs
from tests.tiers import RECURRENCES, leading


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


def counted(compiled, f, *args):
    """Return the programs that a call of ``f`` compiled."""
    before = len(compiled)
    jax.block_until_ready(f(*args))
    return len(compiled) - before


def others(arrays):
    """Return arrays with other values of ridges and gates."""
    changed = {"ridge", "forget", "log_forget"} & set(arrays)
    return arrays | {name: 0.9 * arrays[name] for name in changed}


def layers_of(function):
    """Yield a function and what it wraps, the outermost first."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


@pytest.mark.parametrize("name", sorted({row.rule for row in ROWS}))
def test_a_rule_and_its_step_are_decorated(name):
    """With what makes a call one program; the calls of the leading rules are counted below."""
    steps = [f"{name}_step"] if hasattr(attention, f"{name}_step") else []
    for each in (name, *steps):
        files = [f.__code__.co_filename for f in layers_of(getattr(attention, each))]
        assert programs.__file__ in files, each


@pytest.mark.full
@pytest.mark.usefixtures("one_target")
@leading(ROWS, RECURRENCES)
def test_a_call_is_one_program(row, compiled):
    """Also of one token; other values of its arguments are the same program, and are checked."""
    programs._programs.cache_clear()
    arrays = streams(row)
    assert counted(compiled, call, row, arrays) == 1
    again = others(arrays)
    assert counted(compiled, call, row, again) == 0
    for name, wrong in (("ridge", -1.0), ("forget", 2.0), ("log_forget", 1.0)):
        if name in arrays:
            with pytest.raises(ValueError, match=name):
                call(row, arrays | {name: wrong + 0 * arrays[name]})
    if row.causal:
        names = timed(row, arrays)
        one = {name: a[:, 0] if name in names else a for name, a in arrays.items()}
        assert counted(compiled, lambda: call(row, one, step=True)) == 1
        again = others(one)
        assert counted(compiled, lambda: call(row, again, step=True)) == 0


class Door(NamedTuple):
    """A function of arrays that is no rule, and the calls that one program serves."""

    function: object
    calls: list[tuple[tuple, dict]]
    wrong: dict


def doors():
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    X, y, gram = jnp.asarray(x), jnp.ones((3, 1), jnp.float32), jnp.eye(2, dtype=jnp.float32)
    moments = olsq.Moments(gram, jnp.ones((1, 2), jnp.float32))
    key, value = jnp.ones(2, jnp.float32), jnp.ones(1, jnp.float32)

    def door(function, *arguments, wrong, **options):
        higher = {name: number + 0.05 for name, number in options.items()}
        return Door(function, [(arguments, options), (arguments, higher)], wrong)

    return {
        "online_lstsq": door(
            olsq.online_lstsq, X, y, X, ridge=1.0, forget=0.9, wrong={"forget": 2.0}
        ),
        "local_lstsq": door(olsq.local_lstsq, X, y, X, ridge=1.0, scale=0.5, wrong={"ridge": -1.0}),
        "update": door(olsq.update, moments, key, value, forget=0.9, wrong={"forget": 2.0}),
        "query": door(olsq.query, moments, key, ridge=1.0, wrong={"ridge": -1.0}),
        "start_decoding": door(
            olsq.sequence.start_decoding, moments, ridge=1.0, wrong={"ridge": -1.0}
        ),
        "merge_moments": door(
            olsq.sequence.merge_moments, moments, moments, forget=0.9, wrong={"forget": 2.0}
        ),
    }


@pytest.mark.parametrize("name", [
    "online_lstsq", "local_lstsq", "update", "query", "start_decoding", "merge_moments",
])  # fmt: skip
def test_other_functions_of_arrays_are_one_program(name, compiled):
    door = doors()[name]
    programs._programs.cache_clear()
    (arguments, options), (_, higher) = door.calls
    assert counted(compiled, lambda: door.function(*arguments, **options)) == 1
    assert counted(compiled, lambda: door.function(*arguments, **higher)) == 0
    with pytest.raises(ValueError, match=next(iter(door.wrong))):
        door.function(*arguments, **(options | door.wrong))


def test_what_selects_a_program(compiled):
    """Modes, shapes and gates of 1 throughout do; whole numbers do not."""
    programs._programs.cache_clear()
    x = np.ones((1, 4, 2, 3), np.float32)

    def gla(**options):
        return counted(compiled, lambda: attention.gla(x, x, x, **options))

    assert [gla(forget=0.5), gla(forget=0.6), gla(forget=0), gla(forget=1), gla(forget=1.0)] == [
        1, 0, 0, 1, 0,
    ]  # fmt: skip
    assert [gla(forget=0.5, signed=True), gla(forget=-0.5, signed=True)] == [1, 0]
    with pytest.raises(ValueError, match="forget"):
        gla(forget=-0.5)
    with pytest.raises(TypeError, match="k must be real"):
        attention.gla(x, 1j * x, x)
    with pytest.raises(TypeError, match="forgot"):
        attention.gla(x, x, x, forgot=0.5)


@pytest.mark.usefixtures("one_target")
def test_a_question_about_gates_is_asked_at_every_call(compiled):
    """Also by the solver that a rule hands its gates to: fixed corrections warn."""
    x = np.random.default_rng(0).standard_normal((1, 40, 1, 2)).astype(np.float32)
    solver = olsq.ChunkExact(corrections=1)

    def mesa(forget):
        attention.mesa(x, x, x, ridge=1.0, forget=forget, solver=solver)

    mesa(0.9999)
    before = len(compiled)
    mesa(0.99995)
    assert len(compiled) == before
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="corrections=None"):
            mesa(0.5)


@pytest.mark.slow
@leading(ROWS, RECURRENCES)
def test_derivatives_are_compiled_once(row, compiled):
    def loss(arrays):
        return call(row, arrays)[0].sum()

    assert anew(compiled, jax.grad(loss), streams(row)) == 0


@pytest.mark.slow  # tokens go through the same recurrences
@leading([row for row in ROWS if row.causal], RECURRENCES)
def test_tokens_are_compiled_once(row, compiled):
    arrays = streams(row)
    names = timed(row, arrays)
    one = {name: a[:, 0] if name in names else a for name, a in arrays.items()}
    _, state = call(row, one, step=True)

    def token(one):
        return call(row, one, state, step=True)[0]

    assert anew(compiled, token, one) == 0
    assert anew(compiled, jax.grad(lambda one: token(one).sum()), one) == 0


def test_a_call_has_options_of_the_compiler_where_it_is_a_program_of_its_own(monkeypatch):
    """XLA refuses an unknown option; within another program, or differentiated, none is given."""
    monkeypatch.setattr(programs, "_options", lambda: {"no_such_option": 1})
    q = jnp.ones((1, 3, 1, 2))

    def total(x, *, others=q):
        return attention.linear(x, others, others)[0].sum()

    with pytest.raises(RuntimeError, match="no_such_option"):
        total(q)
    assert jax.jit(lambda x: x + total(np.ones(q.shape)))(2.0) == jax.jit(total)(q) + 2
    assert jax.grad(total)(q).shape == q.shape


def test_a_level_of_the_process_is_kept(monkeypatch):
    """Of XLA's flags, or of JAX's option for few optimisations, which these tests set."""
    option = "jax_disable_most_optimizations"
    own = jax.config.values[option]
    try:
        jax.config.update(option, False)
        monkeypatch.setenv("XLA_FLAGS", "")
        assert programs._options() == {programs.LEVEL: 2}
        monkeypatch.setenv("XLA_FLAGS", f"--{programs.LEVEL}=1")
        assert programs._options() is None
        monkeypatch.setenv("XLA_FLAGS", "")
        jax.config.update(option, True)
        assert programs._options() is None
    finally:
        jax.config.update(option, own)


def test_an_integer_of_numpy_is_an_option():
    q = jnp.arange(12.0).reshape(1, 6, 1, 2)
    found, want = (attention.sliding_window(q, q, q, window=n)[0] for n in (np.int64(2), 2))
    np.testing.assert_array_equal(found, want)
    with pytest.raises(ValueError, match="window must be an integer >= 1, got 0"):
        attention.sliding_window(q, q, q, window=np.int64(0))
