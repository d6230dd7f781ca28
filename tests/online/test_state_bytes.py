"""States as bytes: those of the file, and back."""

from __future__ import annotations

import numpy as np
import pytest

import olsq

X = np.random.default_rng(0).standard_normal((12, 2))
Y = X @ [1.0, -2.0] + 0.5


def learned():
    """One of every kind that has files."""
    bank = olsq.FilterBank(3, n_features=2)
    bank.partial_fit(X.reshape(4, 3, 2)[0], Y.reshape(4, 3)[0])
    return [
        olsq.RecursiveLeastSquares(forget=0.9).fit(X, Y),
        olsq.RollingLeastSquares(window=5).fit(X, Y),
        bank,
        olsq.GroupedLeastSquares().partial_fit(X, Y, by=list("abc") * 4),
        olsq.features.Lags(2).fit(X, Y),
    ]


def test_bytes_are_those_of_the_file_and_come_back(tmp_path):
    metadata = {"offset": 12, "name": "demand"}
    for model in learned():
        data = model.to_bytes(metadata=metadata)
        model.save(tmp_path / "state", metadata=metadata)
        assert (tmp_path / "state").read_bytes() == data
        again = olsq.loads(memoryview(data))
        assert type(again) is type(model)
        assert again.metadata_ == metadata
        assert again.to_bytes(metadata=metadata) == data


def test_what_is_no_state_is_refused():
    data = bytearray(learned()[0].to_bytes())
    with pytest.raises(olsq.StateFileError, match="data is not an olsq state file"):
        olsq.loads(b"nonsense")
    data[-40] ^= 1
    with pytest.raises(olsq.StateFileError, match="data is truncated or damaged"):
        olsq.loads(data)
    with pytest.raises(TypeError, match=r"data must be bytes, got str; olsq\.load reads files"):
        olsq.loads("state.olsq")
    with pytest.raises(ValueError, match="not fitted"):
        olsq.RecursiveLeastSquares().to_bytes()
    with pytest.raises(TypeError, match="JSON"):
        learned()[0].to_bytes(metadata={"when": object()})
