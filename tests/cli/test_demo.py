"""``olsq demo``: its numbers are those of the estimators, baselines included."""

import re
from dataclasses import replace

import numpy as np
import pytest

import olsq
from olsq.cli.demo.figure import draw_demo
from olsq.cli.demo.studies import (
    FORGET,
    LATE,
    RIDGE,
    TOKENS,
    Reading,
    co2_study,
    compare,
    drifting_sequences,
    macro_study,
    scored_rows,
)

from .conftest import start


def shortened(study, n):
    """The study's first rows: fitting anew for every row is slow, which is the point of it."""
    return replace(study, X=study.X[:n], y=study.y[:n], time=study.time[:n])


@pytest.mark.parametrize(
    "study", [macro_study(), shortened(co2_study(), 400)], ids=lambda study: study.title
)
def test_comparison_is_honest(study):
    entries = {entry.name: entry for entry in compare(study)}
    rows = scored_rows(study)
    everything = entries["olsq, nothing forgotten"].error[rows]
    refitted = entries["OLS fitted anew for every row"].error[rows]
    np.testing.assert_allclose(everything, refitted, rtol=1e-6, atol=1e-8)
    path = olsq.coefficient_path(study.X, study.y, fit_intercept=True, half_life=study.half_life)
    np.testing.assert_array_equal(entries[f"olsq, {study.memory}"].error[rows], path.residual[rows])
    last, mean = entries["last value"].error, entries["mean so far"].error
    for t in np.flatnonzero(rows)[::97]:
        before = study.y[:t][np.isfinite(study.y[:t])]
        assert last[t] == study.y[t] - before[-1]
        assert mean[t] == pytest.approx(study.y[t] - before.mean())
    assert [entry.name for entry in entries.values() if not entry.honest] == [
        "OLS on all rows at once*"
    ]


def dense_error_at_the_end(forget):
    """Part of the values' square that a ridge regression on all pairs before each key misses."""
    keys, values = (x[:, :, 0].astype(float) for x in drifting_sequences())
    squared = []
    for t in range(1, TOKENS)[LATE]:
        k, v = keys[:, :t], values[:, :t]
        weights = forget ** np.arange(t - 1, -1, -1)[:, None]
        moments = np.swapaxes(k, 1, 2) @ (weights * k) + RIDGE * np.eye(k.shape[-1])
        coef = np.linalg.solve(moments, np.swapaxes(k, 1, 2) @ (weights * v))
        squared.append((np.einsum("bi,bij->bj", keys[:, t], coef) - values[:, t]) ** 2)
    return np.mean(squared) / np.mean(values**2)


@pytest.mark.full
def test_demo_prints_tables_and_saves_the_figure(tmp_path):
    figure = tmp_path / "demo.png"
    process = start("demo", "--out", figure)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert figure.read_bytes().startswith(b"\x89PNG")
    flat = " ".join(out.decode().split())
    solved = " %.2f %%" % (100 * dense_error_at_the_end(FORGET))
    assert re.search(r"forgetting 0.95 [\d.]+ %" + re.escape(solved), flat)
    solved = " %.2f %%" % (100 * dense_error_at_the_end(1.0))
    assert re.search(r"nothing forgotten [\d.]+ %" + re.escape(solved), flat)
    for words in (
        "olsq, half-life 26 weeks 0.331 0.420",
        "last value 1.108 1.351",
        "yet the last value is a better forecast (1.11 against 4.01)",
        "beats the last value (0.33 against 0.39)",
        "59 have no measurement",
    ):
        assert words in flat


@pytest.mark.slow
def test_figure_has_five_panels():
    ends = 10.0 ** -np.arange(1, 6)
    readings = [Reading(f"to {end:g}", np.geomspace(1, end, TOKENS - 1)) for end in ends]
    figure = draw_demo(macro_study(), co2_study(), readings)
    assert len(figure.axes) == 5


@pytest.mark.parametrize(
    ("out", "message"), [("demo.txt", "--out must end in .png"), ("no/demo.png", "no directory no")]
)
def test_demo_refuses_a_figure_it_cannot_write(out, message, tmp_path, monkeypatch, olsq_command):
    monkeypatch.chdir(tmp_path)
    code, _, err = olsq_command("demo", "--out", out)
    assert code == 2
    assert message in err
