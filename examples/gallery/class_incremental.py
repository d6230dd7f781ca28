"""Learn classes that arrive one after another, without forgetting the first.

    python examples/gallery/class_incremental.py [--features 4096] [--figure classes.png]

A network's body stays as it is, here random features of scikit-learn's digits; its last layer
learns.  Rows of two new digits arrive at a time and are never seen again.  A last layer solved by
least squares on one-hot targets ends at the fit of all rows at once, whatever the order of the
classes, and keeps nothing but its moments.  One trained by stochastic gradients forgets the
earlier digits.
"""

from __future__ import annotations

import time

import figures
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import olsq

CLASSES, TEST = 10, 500


def random_features(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Frozen features (n, D) of the digits, and their labels (n,), in a random order."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    weights = 0.04 * rng.standard_normal((images.shape[1], n_features))
    order = rng.permutation(len(images))
    features = np.tanh((images - images.mean(0)) @ weights + rng.uniform(-1, 1, n_features))
    return features[order], labels[order]


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == labels).mean())


def batch_head(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Coefficients (D + 1, m) of ridge 1 on all rows at once, the intercept's first."""
    X = np.column_stack([np.ones(len(X)), X])
    penalty = np.ones(X.shape[1])
    penalty[0] = 0.0
    return np.linalg.solve(X.T @ X + np.diag(penalty), X.T @ Y)


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, features=4096)
    X, labels = random_features(options.features)
    Y = np.eye(CLASSES)[labels]
    train, test = np.arange(TEST, len(X)), np.arange(TEST)
    rng = np.random.default_rng(1)
    curves, heads, seconds = {}, [], 0.0
    for order in (np.arange(CLASSES), rng.permutation(CLASSES)):
        # [use]
        head = olsq.RecursiveLeastSquares(method="information", residuals=False, ridge=1.0)
        # [end]
        sgd = SGDClassifier(loss="log_loss", random_state=0)
        solved, trained = [], []
        for count in range(2, CLASSES + 1, 2):
            rows = train[np.isin(labels[train], order[count - 2 : count])]
            seen = test[np.isin(labels[test], order[:count])]
            start = time.perf_counter()
            # [use]
            head.partial_fit(X[rows], Y[rows])
            # [end]
            seconds += time.perf_counter() - start
            solved.append(accuracy(head.predict(X[seen]), labels[seen]))
            for _ in range(5):
                sgd.partial_fit(X[rows], labels[rows], classes=np.arange(CLASSES))
            trained.append(accuracy(sgd.decision_function(X[seen]), labels[seen]))
        curves.setdefault("solved", solved)
        curves.setdefault("trained by gradients", trained)
        heads.append(np.vstack([head.intercept_, head.coef_.T]))
    batch = batch_head(X[train], Y[train])
    differences = [np.abs(theta - batch).max() / np.abs(batch).max() for theta in heads]
    print(f"{2 * len(train) / seconds:.3g} rows a second, {options.features} features")
    print(f"accuracy on all ten digits: solved {curves['solved'][-1]:.3f}, "
          f"trained by gradients {curves['trained by gradients'][-1]:.3f}")  # fmt: skip
    for name, difference in zip(("in order", "shuffled"), differences, strict=True):
        print(f"classes {name}: relative difference to all rows at once {difference:.1e}")
    assert max(differences) < 1e-9
    assert curves["solved"][-1] > 0.9 > 0.6 > curves["trained by gradients"][-1]

    def draw(axes):
        counts = np.arange(2, CLASSES + 1, 2)
        for (name, curve), color in zip(curves.items(), ("#2166ac", "#b35806"), strict=True):
            axes.plot(counts, curve, "o-", color=color, ms=3, label=name)
        axes.set_xlabel("digits learned so far")
        axes.set_xticks(counts)
        axes.set_ylim(0, 1.05)
        axes.set_title("Accuracy on all of them", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
