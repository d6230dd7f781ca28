"""State files that version 0.2.0 wrote can be loaded, and learn on.

``version_0_2_0.json`` holds them in base64: every kind of estimator after 30 rows of two
regressors, whose numbers are multiples of an eighth.  ``version_0_2_0_numbers.json`` holds more of
them with what 0.2.0 answered, before and after ten more rows, builders of features, and states of
``olsq fit`` with the predictions of ``olsq predict``.  ``moments_states.json`` holds states of
later commits that stored moments (``method="information"``, or a fixed ridge), some after fewer
rows, and ``float32_states.json`` states that were stored in float32.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import olsq

KEPT = json.loads((Path(__file__).parent / "version_0_2_0.json").read_text())
FLOAT32 = json.loads((Path(__file__).parent / "float32_states.json").read_text())
NUMBERS = json.loads((Path(__file__).parent / "version_0_2_0_numbers.json").read_text())
MOMENTS = json.loads((Path(__file__).parent / "moments_states.json").read_text())
CASES = [(way, name) for way, items in KEPT.items() for name in items]


def rows():
    rng = np.random.default_rng(0)
    X = rng.integers(-4, 5, (30, 2)) / 4
    return X, X @ [1.0, -2.0] + rng.integers(-4, 5, 30) / 8


def learn_again(estimator, name):
    X, y = rows()
    if name == "bank":
        return estimator.partial_fit(np.ones((3, 2)), np.ones(3))
    if name == "groups":
        return estimator.partial_fit(X, y, by=np.arange(30) % 3)
    return estimator.partial_fit(X, y)


@pytest.mark.parametrize(("way", "name"), CASES)
def test_what_0_2_0_wrote_loads_and_learns_on(way, name):
    data = base64.b64decode(KEPT[way][name])
    loaded = olsq.loads(data)
    again = learn_again(loaded, name)
    assert olsq.loads(again.to_bytes()).to_bytes() == again.to_bytes()


def table_of(name, item):
    """X, y and the keywords of the rows that this state of 0.2.0 learned or would learn next."""
    table = {key: np.array(values) for key, values in NUMBERS["table"].items()}
    X, y = table["X"], table[item["y"]]
    if name.startswith("bank"):
        X, y = np.stack([X, -X, X[::-1]]), np.stack([y, y, y[::-1]])
    return X, y, {key: table[column] for key, column in item["keywords"].items()}


def assert_numbers(estimator, wanted, X, keywords):
    by = {"by": keywords["by"][:3]} if "by" in keywords else {}
    probe = np.stack([X[0, :2]] * 3) if X.ndim == 3 else X[:3]
    for read, value in wanted.items():
        found = estimator.predict(probe, **by) if read == "predict" else getattr(estimator, read)
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12, err_msg=read)


@pytest.mark.parametrize("name", NUMBERS["states"])
def test_what_0_2_0_wrote_gives_its_numbers_before_and_after_more_rows(name, tmp_path):
    item = NUMBERS["states"][name]
    X, y, keywords = table_of(name, item)
    path = tmp_path / "state.olsq"
    path.write_bytes(base64.b64decode(item["state"]))
    for loaded in (olsq.load(path), olsq.loads(path.read_bytes())):
        assert_numbers(loaded, item["numbers"], X, keywords)
        if "later" in item:
            rows = slice(item["n_rows"], item["n_rows"] + 10)
            more = X[:, rows] if X.ndim == 3 else X[rows]
            of_rows = {key: values[rows] for key, values in keywords.items()}
            loaded.partial_fit(more, y[:, rows] if X.ndim == 3 else y[rows], **of_rows)
            later = item["later"]
            if name == "recursive information first rows":
                # two rows' moments do not say what the noise was, so its variance stays unknown
                later = later | {"sigma2_": np.inf, "coef_stderr_": [np.inf] * 3}
            assert_numbers(loaded, later, X, keywords)


@pytest.mark.parametrize("name", NUMBERS["builders"])
def test_builders_of_0_2_0_go_on_with_their_history(name):
    item = NUMBERS["builders"][name]
    X, y = (np.array(NUMBERS["table"][key])[30:] for key in ("X", "y"))
    features = olsq.loads(base64.b64decode(item["state"])).partial_transform(X, y)
    np.testing.assert_allclose(features, np.array(item["later"], float), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MOMENTS)
def test_states_of_moments_become_factors_that_learn_on(name):
    loaded = olsq.loads(base64.b64decode(MOMENTS[name]))
    fresh = olsq.RecursiveLeastSquares(**loaded.get_params())
    X, y = rows()
    factors = np.full(30, fresh.forget)
    if "gap" in name:
        factors = np.append(np.full(29, 0.9), 1e-12)
    if "complex" in name:
        X, y = X * (1 + 0.5j), y * 1j
    if "by target" in name:
        y = np.column_stack([y, -y])
        y[3, 1] = np.nan
    n = loaded.n_samples_seen_
    fresh.partial_fit(X[:n], y[:n], forget=factors[:n])
    for _ in range(2):
        for read in ("coef_", "intercept_", "sigma2_", "coef_stderr_", "rank_", "determined_"):
            found, wanted = getattr(loaded, read), getattr(fresh, read)
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=read)
        for est in (loaded, fresh):
            est.partial_fit(X[::-1], y[::-1])
    assert olsq.loads(loaded.to_bytes()).to_bytes() == loaded.to_bytes()


@pytest.mark.parametrize("name", FLOAT32)
def test_states_of_float32_load_as_float64(name):
    loaded = olsq.loads(base64.b64decode(FLOAT32[name]))
    assert "state_dtype" not in loaded.get_params()
    X, y = rows()
    by = {"by": np.arange(30) % 3} if "group" in name else {}
    if name == "by target":
        y = np.column_stack([y, np.where(np.arange(30) == 3, np.nan, y)])
    if name == "bank":
        X, y = np.stack([X] * 3), np.stack([y] * 3)
    fresh = type(loaded)(**loaded.get_params()).partial_fit(X, y, **by)
    for _ in range(2):
        for read in ("coef_", "intercept_"):
            found, wanted = getattr(loaded, read), getattr(fresh, read)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=read)
        for estimator in (loaded, fresh):
            estimator.partial_fit(X[..., ::-1, :], y[::-1] if y.ndim < 2 else y, **by)
    assert olsq.loads(loaded.to_bytes()).to_bytes() == loaded.to_bytes()
