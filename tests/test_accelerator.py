"""Counts of programs, predictions from them, and the dry run of the command that measures."""

import json

import jax
import jax.numpy as jnp
import pytest

import olsq
from benchmarks.reports import accelerator
from benchmarks.support import accelerators
from benchmarks.support.programs import count_program
from olsq.sequence.jax.platform import Target, tuned_for

N = 64
A = jax.ShapeDtypeStruct((N, N), jnp.float32)


def test_products_and_loops_are_counted():
    def power(a):
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.sin(x @ a), a)

    found = count_program(power, A)
    assert found["flops"] == 5 * 2 * N**3
    assert found["iterations"] == 5
    assert found["kernels"] >= 10  # a product and a sine each time
    assert found["bytes"] >= 5 * 5 * 4 * N**2  # two arrays read and one written, then one and one
    assert found["largest"] == 4 * N**2


def test_a_loop_of_unknown_length_has_the_length_that_is_given():
    def until(a):
        return jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x @ x, a)

    one, many = (count_program(until, A, steps=n) for n in (1, 30))
    assert one["open_loops"] == 1
    assert many["flops"] == 30 * one["flops"] == 30 * 2 * N**3


@pytest.mark.full
def test_loops_that_are_short_under_mild_gates_are_counted_so():
    stream = jax.ShapeDtypeStruct((1, 64, 1, 4), jnp.float32)
    gates = jax.ShapeDtypeStruct((1, 64, 1), jnp.float32)

    def mesa(x, gates):
        return olsq.attention.mesa(x, x, x, forget=gates, ridge=1.0)[0]

    with tuned_for(Target(cpu=False)):
        one, many = (count_program(mesa, stream, gates, steps=n) for n in (1, 30))
    assert one == many
    assert one["open_loops"] == 0


def test_a_prediction_is_the_larger_of_arithmetic_and_memory_and_the_launches():
    counts = {"flops": 67e12, "bytes": 3.35e12 / 2, "kernels": 1e5}
    assert accelerators.predict(counts, "H100", True) == (pytest.approx(1.3), "arithmetic")
    assert accelerators.predict(counts, "H100", False) == (pytest.approx(0.8), "memory")


@pytest.mark.full
def test_the_command_runs_dry_keeps_what_it_has_and_refuses_a_cpu(tmp_path, monkeypatch):
    out = tmp_path / "found.json"
    with pytest.raises(SystemExit, match="no GPU or TPU"):
        accelerator.main(["--out", str(out)])
    rules = "gla", "softmax"
    command = ["--out", str(out), "--small", "--rules", *rules]
    rows = accelerator.main(command)["rows"]
    assert list(rows) == [f"olsq {r}, {d}, 64" for d in accelerator.DTYPES for r in rules]
    assert all(min(row["forward"], row["both"], row["compile"]) > 0 for row in rows.values())
    assert json.loads(out.read_text())["rows"] == rows
    assert "olsq gla, float32, 64" in out.with_suffix(".md").read_text()

    monkeypatch.setattr(accelerator, "measure", lambda *_: pytest.fail("measured again"))
    assert accelerator.main(command)["rows"] == rows


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setattr(accelerator, "error_of", lambda *_: 0.5)
    monkeypatch.setattr(accelerator, "best", lambda *_: pytest.fail("timed"))
    row = accelerator.measure("gla", 64, "float32", (1, 2, 8), 1)
    assert row["error"] == 0.5
    assert "not timed" in row["refused"]
