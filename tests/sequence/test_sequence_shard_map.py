"""Every solver under ``jax.shard_map``, and decoding: values and gradients of one device."""

from __future__ import annotations

import jax
import pytest

from tests.shard_map import on_two_devices

PROGRAM = """
import olsq
from tests.sequence.sequence_cases import PAIRS, stack, streams, start, T
jax.config.update("jax_enable_x64", True)
group = dict(list(streams()[0].items())[:2])
arrays = stack(group)
arrays["gram"], arrays["cross"] = start(group)
arrays = {n: a[:, :9] if a.shape[1:2] == (T,) else a for n, a in arrays.items()}
arrays["ridge"] = arrays["ridge"][0]  # of all streams
specs = {n: P("rows") for n in arrays} | {"ridge": P()}

def whole(row, mode, adjoint, from_state):
    def run(a):
        names = ["forget", "weight"]
        if from_state:
            state = olsq.Moments(a["gram"], a["cross"])
            names += ["ridge"] if mode == "fixed" else []
        else:
            state, names = None, [*names, "ridge"]
        return olsq.online_lstsq(
            a["keys"], a["values"], a["queries"], **{n: a[n] for n in names}, ridge_mode=mode,
            solver=row.solver(np.float64), adjoint=adjoint, state=state,
        ).value
    return run

VALUES = ("chunk-exact", "recursive")  # the others are traced: types are found there
for row, mode in PAIRS:
    for adjoint, from_state in (("implicit", False), ("unrolled", True)):
        if adjoint == "unrolled" and (row.name == "neumann" or not row.unrolls):
            continue  # 4000 steps of the table; refused
        compiled = adjoint == "implicit" and mode == row.modes[0] and row.name in VALUES
        case = f"{row.name} {mode} {adjoint} state={from_state}"
        f = whole(row, mode, adjoint, from_state)
        check(case, f, arrays, specs, compiled=compiled, tol=1e-7)

def decode(carried):
    def run(a):
        state = olsq.Moments(a["gram"], a["cross"])
        ridge = None if carried else a["ridge"]
        state = olsq.sequence.start_decoding(state, ridge=a["ridge"]) if carried else state
        out = 0
        for t in range(2):
            state = olsq.update(
                state, a["keys"][:, t], a["values"][:, t], forget=a["forget"][:, t],
                weight=a["weight"][:, t],
            )
            out = out + olsq.query(state, a["queries"][:, t], ridge=ridge)
        return out
    return run

for carried in (False, True):
    check(f"decoding {carried}", decode(carried), arrays, specs, tol=1e-7, compiled=carried)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="jax.shard_map came with jax 0.6")
def test_streams_over_two_devices():
    assert on_two_devices(PROGRAM).count("equal") > 20
