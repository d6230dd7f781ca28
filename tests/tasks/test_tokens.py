"""The metric of token tasks, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.tasks.tokens import IGNORE, token_accuracy


def test_accuracy_by_hand():
    targets = [[0, 0, 0, 1, IGNORE]]
    assert token_accuracy([[0, 0, 1, 1, 5]], targets) == 0.75
    assert token_accuracy([[0, 0, 1, 1, 5]], targets, average="macro") == pytest.approx(
        (2 / 3 + 1) / 2
    )
    assert token_accuracy([[0, 0, 2, 1, 5]], targets, average="macro") == pytest.approx(
        (2 / 3 + 1) / 3
    )
    assert np.isnan(token_accuracy([[0]], [[IGNORE]]))
    assert np.isnan(token_accuracy([[0]], [[IGNORE]], average="macro"))
    with pytest.raises(ValueError, match="shape"):
        token_accuracy([[0, 1]], [[0]])
    with pytest.raises(ValueError, match="average"):
        token_accuracy([[0]], [[0]], average="weighted")
