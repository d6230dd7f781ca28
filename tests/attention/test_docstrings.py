"""Docstrings of rules and steps: every parameter, in order, and shared ones in shared words."""

from __future__ import annotations

import inspect
import pickle
import typing
from collections import Counter
from typing import NamedTuple

import jax
import pytest

from olsq import attention
from olsq.attention import one_token

PUBLIC = {n: f for n, f in vars(attention).items() if n in attention.__all__}
FUNCTIONS = {n: f for n, f in PUBLIC.items() if inspect.isfunction(f)}
RULES = {n: f for n, f in FUNCTIONS.items() if not n.endswith("_step")}
STEPS = {n: f for n, f in FUNCTIONS.items() if n.endswith("_step")}

OPTIONAL = "array, optional"
QKV = "array (B, T, H, K), (B, T, H, K), (B, T, H, V)"
LEFT_OUT = "broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or not."
UNSCALED = "Queries (not scaled), keys, values"
SEGMENTS = "Sequences packed into one row: non-decreasing;"
IDS = "int array (B, T), optional"
LAMBDA = "Diagonal of Lambda, > 0: a number, (K,) or (H, K)"
AS_LINEAR = "As for :func:`ttt_linear`."

# What several rules take, grouped as documented: type, and how the text begins.
SHARED = {
    "q, k, v": [
        (QKV, UNSCALED),
        (QKV, "Queries, keys, values."),  # of softmax and gsa, which scale
        ("array (B, T, H, V)", f"{UNSCALED}, of one width V."),  # of test-time training
    ],
    "q, v": [("array (B, T, H, K), (B, T, H, V)", "Queries (the paper's output gate; not scaled)")],
    "q": [
        ("array (B, S, H, K)", "Queries;"),
        ("array (B, T, H, K)", "Queries (not scaled)."),  # gated_delta_product
    ],
    "k, v": [
        ("array (B, T, H, K), (B, T, H, V)", "Keys and values."),
        ("array (B, T, H, n, K), (B, T, H, n, V)", "Keys and values, n of each a token"),
    ],
    "forget, log_forget": [
        (
            OPTIONAL,
            "Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 "
            "forgets everything before its token.",
        ),
        (OPTIONAL, "Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H)"),  # gla
        (
            OPTIONAL,
            "Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  Since the error",
        ),  # comba
        (
            OPTIONAL,
            "Gates alpha in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  Since mom",
        ),  # momentum_delta
        ("array (B, T, H, K)", "Gates a in [0, 1], or their logs; needed"),  # hgrn2
        ("array (B, T, H, M)", "Gates a in [0, 1], or their logs, one per slot:"),  # gsa
        (
            "array (B, T, H, K), or (B, T, H) or what broadcasts to it, optional",
            "Gates w in [0, 1], or their logs: per key dimension, or one per token.",
        ),  # rwkv6
    ],
    "forget": [("array (H,), optional", "Default ``1 - 2**-(5 + h)``")],
    "weight": [
        (OPTIONAL, f"Write strengths >= 0, {LEFT_OUT}"),
        (OPTIONAL, f"Write strengths beta >= 0, {LEFT_OUT}"),
        (OPTIONAL, f"Write strengths eta >= 0, {LEFT_OUT}"),
        (OPTIONAL, f"Step sizes beta >= 0, {LEFT_OUT}"),
        (OPTIONAL, "Step sizes beta >= 0: one per token, broadcast to (B, T, H); or"),  # longhorn
        ("array (B, T, H, n) or (n,), optional", "Step sizes beta >= 0.  Default 1.  0 leaves a"),
        (OPTIONAL, "Steps d >= 0, broadcast to (B, T, H).  Default 1.  0 does not leave"),  # mamba3
        (OPTIONAL, "Write strengths >= 0: per slot, broadcast to (B, T, H, M), or one per"),  # gsa
        (OPTIONAL, f"Input gates i >= 0, {LEFT_OUT}"),
        (OPTIONAL, f"Sample weights >= 0, {LEFT_OUT}"),
        (OPTIONAL, f"Sample weights beta >= 0, {LEFT_OUT}"),
    ],
    "signed": [
        (
            "bool",
            "``forget`` may lie in [-1, 1], which lets a head track parity; a log has no sign.",
        )
    ],
    "ridge": [
        ("array", LAMBDA),
        ("array", "Penalty of the slopes, > 0: a number, (H,) or (B, T, H)."),  # local_linear
        ("array", "Diagonal of the ridge before the first token, > 0: a number, (K,) or (H, K)."),
    ],
    "solver": [
        ("Solver, optional", "``olsq.ChunkExact()`` if None"),
        ("Solver, optional", "30 Chebyshev steps"),  # kalman
    ],
    "adjoint": [('{"implicit", "unrolled"}', "See :func:`olsq.online_lstsq`.")],
    "window": [
        ("int", "Tokens that a query sees, its own included."),
        ("int, optional", "Tokens that a query sees, its own included; all if None."),
    ],
    "capacity": [("int, optional", "Tokens that the returned cache has room for")],
    "scale": [
        ("float, optional", "Of the scores; ``K**-0.5`` if None."),
        ("float", "Of the scores."),  # gsa
    ],
    "state": [("{state}, optional", "As returned for the tokens before; an empty past if None.")],
    "segment_ids": [
        (IDS, f"{SEGMENTS} nothing passes from one to the next."),
        (IDS, f"{SEGMENTS} each is its own context"),  # intention
    ],
    "rate": [
        ("array (H, V, K) or what broadcasts to it", "Log of the speed"),
        ("array (H, V) or what broadcasts to it", "The paper's Lambda"),
    ],
    "learning_rate": [
        ("array (B, T, H) or what broadcasts to it", "eta >= 0"),
        ("array (B, T, H) or what broadcasts to it", AS_LINEAR),
    ],
    "initial": [
        ("(weight, bias), arrays (H, V, V), (H, V), optional", "Where learning starts"),
        (
            "(weight1, bias1, weight2, bias2), optional",
            "Arrays (H, F, V), (H, F), (H, V, F), (H, V)",
        ),
    ],
    "norm_scale, norm_bias": [
        ("array (H, V)", "Of the layer normalisation LN."),
        ("array (H, V)", AS_LINEAR),
    ],
    "eps": [("float", "Added to the variance in LN."), ("float", AS_LINEAR)],
    "base, eps": [("float", "The scaling lies between")],
    "mini_batch": [("int", "Tokens whose gradients share"), ("int", AS_LINEAR)],
    "query_factor": [
        ("array (H, mini_batch) or what broadcasts to it, optional", "How much of its"),
        ("array (H, mini_batch) or what broadcasts to it, optional", AS_LINEAR),
    ],
}

# Steps that are more than their rule on one token, with docstrings of their own; they also take a
# DecodeState.
OWN = {"mesa_step", "mesa_discounted_step"}
GATE = "(B, H) or what broadcasts to it, optional"
STREAMS = {"q", "k", "v", "x"}


class Entry(NamedTuple):
    names: tuple[str, ...]
    kind: str
    text: str


def entries(function) -> list[Entry]:
    """The section "Parameters": names, type, and the text with its lines joined."""
    section = inspect.getdoc(function).split("Parameters\n----------\n")[1].split("\n\n")[0]
    found = []
    for line in section.splitlines():
        if line.startswith("    "):
            names, kind, text = found[-1]
            # A sentence that ends a line is followed by two spaces, as inside of one.
            gap = "" if not text else "  " if text.endswith(".") else " "
            found[-1] = Entry(names, kind, text + gap + line.strip())
        else:
            names, _, kind = line.partition(" : ")
            found.append(Entry(tuple(names.split(", ")), kind, ""))
    return found


def state_of(function) -> str:
    """Return the type of a rule's state as its signature, and so its docstring, names it."""
    kinds = inspect.signature(function).parameters["state"].annotation.split(" | ")[:-1]
    which = "with a ``window``" if kinds[-1] == "RecentTokens" else "if ``normalise``"
    return kinds[0] if len(kinds) == 1 else f"{kinds[0]}, or {kinds[1]} {which}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_documented_in_order(name):
    function = FUNCTIONS[name]
    documented = [n for entry in entries(function) for n in entry.names]
    assert documented == list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", RULES)
def test_what_rules_share_is_said_in_the_same_words(name):
    counts = Counter(n for f in RULES.values() for n in inspect.signature(f).parameters)
    for entry in entries(RULES[name]):
        if max(counts[n] for n in entry.names) == 1:
            continue
        allowed = SHARED[", ".join(entry.names)]
        kinds = [(kind.replace("{state}", state_of(RULES[name])), text) for kind, text in allowed]
        assert any(entry.kind == k and entry.text.startswith(t) for k, t in kinds), entry


def test_every_shared_text_is_in_use():
    used = {(", ".join(e.names), e.text) for f in RULES.values() for e in entries(f)}
    for names, allowed in SHARED.items():
        for _, text in allowed:
            assert any(n == names and x.startswith(text) for n, x in used), (names, text)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_what_its_rule_takes_for_one_token(name):
    rule = RULES[name.removesuffix("_step")]
    step = inspect.signature(STEPS[name]).parameters
    whole = {n: p for n, p in inspect.signature(rule).parameters.items() if n != "segment_ids"}
    assert list(step) == list(whole)
    for n, parameter in whole.items():
        assert step[n].kind == parameter.kind
        if name not in OWN:
            assert step[n].default == parameter.default


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_step_of_its_own_refers_to_its_rule(name):
    rule = RULES[name.removesuffix("_step")]
    of_rule = {n: e for e in entries(rule) for n in e.names}
    for entry in entries(STEPS[name]):
        kind = of_rule[entry.names[0]].kind
        if "state" in entry.names:
            assert entry.kind == "Moments or DecodeState, optional"
        elif STREAMS.issuperset(entry.names):
            assert entry.kind == kind.replace("(B, T, H", "(B, H")
            assert not entry.text
        elif entry.names != ("ridge",):
            assert entry.text.startswith(f"As for :func:`{rule.__name__}`")
            assert entry.kind.endswith(GATE) if kind == OPTIONAL else entry.kind == kind


@pytest.mark.parametrize("name", sorted(STEPS.keys() - OWN))
def test_a_step_is_documented_as_its_rule_without_the_axis_of_time(name):
    rule, step = RULES[name.removesuffix("_step")], STEPS[name]
    before = [entry for entry in entries(rule) if entry.names != ("segment_ids",)]
    for entry, whole in zip(entries(step), before, strict=True):
        assert entry.names == whole.names
        assert entry.text.split()[:3] == whole.text.split()[:3]
    text = inspect.getdoc(step)
    assert "(B, T" not in text
    assert "segment_ids" not in text
    assert inspect.getdoc(rule).partition("\n\n")[0] in text


@pytest.mark.parametrize("name", sorted(STEPS.keys() - OWN))
def test_arguments_documented_with_time_get_it_and_no_others(name, monkeypatch):
    rule, step, timed = RULES[name.removesuffix("_step")], STEPS[name], set()
    monkeypatch.setattr(
        one_token,
        "run_one_token",
        lambda rule, tokens, gates, **options: timed.update(tokens, gates),
    )
    with jax.disable_jit():  # a program would leave out what is the default
        step(**dict.fromkeys(inspect.signature(step).parameters))
    documented = {n for e in entries(rule) if "(B, T, H" in f"{e.kind} {e.text}" for n in e.names}
    assert timed == documented - {"state"}


def test_a_step_is_a_function_of_its_rules_module():
    step = attention.gla_step
    assert pickle.loads(pickle.dumps(step)) is step
    assert (step.__name__, step.__qualname__) == ("gla_step", "gla_step")
    assert step.__module__ == attention.gla.__module__
    assert typing.get_type_hints(step)["state"] == attention.Memory | None
    with pytest.raises(TypeError, match=r"gla_step\(\) missing a required argument: 'k'"):
        step(1.0)
    with pytest.raises(TypeError, match=r"gla_step\(\) got an unexpected .* 'segment_ids'"):
        step(1.0, 1.0, 1.0, segment_ids=None)
