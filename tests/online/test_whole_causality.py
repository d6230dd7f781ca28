"""Later rows change no bit of an earlier output."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import olsq
from tests.sequence.sequence_cases import unit

T, M = 90, 3
# What the arrays of a token may become, whatever they were; the last of a stream that goes on.
FUTURES = {
    "nan keys": {"keys": np.nan},
    "infinite keys": {"keys": np.inf},
    "nan values": {"values": np.nan},
    "infinite values": {"values": -np.inf},
    "nan queries": {"queries": np.nan},
    "huge keys": {"keys": 1e18},
    "large keys": {"keys": 1e4},
    "huge values": {"values": 3e38},
    "huge queries": {"queries": 3e38},
    "small keys": {"keys": 1e-18},
    "absent": {"weight": 0.0},
    "heavy": {"weight": 1e12},
    "nan weights": {"weight": np.nan},
    "zeros": {"keys": 0.0, "values": 0.0, "queries": 0.0},
    "everything": {"keys": 1e12, "values": np.nan, "queries": np.inf, "weight": 7.0},
}


def stream(kind, d, gate, dtype, seed=0):
    rng = np.random.default_rng([seed, d])
    keys = unit(rng.normal(size=(T, d)))
    if kind == "repeats":
        keys[10:40] = keys[10]
    elif kind == "scales":
        keys *= 10.0 ** rng.integers(-3, 4, (T, 1))
    elif kind == "one direction":
        keys[:] = keys[0]
    elif kind == "zeros":
        keys[::3] = 0
    arrays = {
        "keys": keys,
        "values": rng.normal(size=(T, M)),
        "queries": rng.normal(size=(T, d)),
        "weight": rng.uniform(0.2, 1, T),
    }
    gates = {"mixed": rng.choice([1.0, 0.9, 0.999, 0.0], T, p=[0.5, 0.2, 0.28, 0.02])}
    forget = gates[gate] if gate in gates else np.full(T, gate)
    return {n: a.astype(dtype) for n, a in arrays.items()} | {"forget": forget}


def change(arrays, at, future, rest):
    """Token ``at`` becomes what ``future`` says; those after it, of another stream, if ``rest``."""
    out = {n: a.copy() for n, a in arrays.items()}
    rng = np.random.default_rng(1)
    for n, a in out.items():
        if rest and n != "forget":
            a[at:] = rng.uniform(0, 2, a[at:].shape)
    for n, number in FUTURES[future].items():
        out[n][at] = number
    return out


def solve(arrays, ridge, mode):
    with np.errstate(over="ignore", invalid="ignore"):
        fit = olsq.online_lstsq(**arrays, ridge=ridge, ridge_mode=mode)
    return fit.value, fit.stats.residual, fit.stats.steps


@pytest.mark.full
@given(
    kind=st.sampled_from(["plain", "repeats", "scales", "one direction", "zeros"]),
    d=st.sampled_from([1, 5, 20]),
    gate=st.sampled_from([1.0, 0.999, 0.9, "mixed"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    ridge=st.sampled_from([0.0, 1e-6, 1e-2, 1.0]),
    mode=st.sampled_from(["fixed", "discounted"]),
    at=st.integers(0, T - 1),
    rest=st.booleans(),
)
def test_later_samples_change_no_bit_of_earlier_outputs(
    kind, d, gate, dtype, ridge, mode, at, rest
):
    arrays = stream(kind, d, gate, dtype)
    want = solve(arrays, ridge, mode)
    for future in FUTURES:
        got = solve(change(arrays, at, future, rest), ridge, mode)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a[:at], b[:at], err_msg=future)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_lost_sample_at_every_position(dtype):
    arrays = stream("plain", 20, 0.999, dtype)
    want = solve(arrays, 1e-2, "fixed")
    for at in range(T):
        got = solve(change(arrays, at, "nan keys", False), 1e-2, "fixed")
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a[:at], b[:at])
        assert np.isnan(got[0][at:]).all()
