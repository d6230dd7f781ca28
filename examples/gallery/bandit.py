"""Choose among ten articles for readers who differ: LinUCB and Thompson sampling.

    python examples/gallery/bandit.py [--steps 2000] [--peers 1] [--figure bandit.png]

Each article has a linear reward of its own in eight features of the reader, with noise.  Regret is
what was lost against knowing the rewards.  ``--peers 1`` runs mabwiser's policies beside it, on the
same readers and noise.
"""

from __future__ import annotations

import time

import figures
import numpy as np

import olsq

ARMS, FEATURES, NOISE = 10, 8, 0.5


def readers(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (steps, d), mean rewards (steps, arms) and noise (steps,)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((steps, FEATURES)) / np.sqrt(FEATURES)
    truth = rng.standard_normal((ARMS, FEATURES))
    return X, X @ truth.T, NOISE * rng.standard_normal(steps)


def ours(
    policy: str, X: np.ndarray, means: np.ndarray, noise: np.ndarray, seed: int = 1
) -> np.ndarray:
    """Regret of every step."""
    rng, regret = np.random.default_rng(seed), np.empty(len(X))
    bank = olsq.FilterBank(ARMS, n_features=FEATURES, ridge=1.0, fit_intercept=False)
    for t, x in enumerate(X):
        if policy == "LinUCB":
            value = bank.predict(x) + NOISE * np.sqrt(bank.leverage(x))
        else:
            value = bank.sample_coef(rng, sigma2=NOISE**2)[0] @ x
        arm = int(np.argmax(value)) if t >= ARMS else t  # each once, to begin with
        bank.partial_fit(x, means[t, arm] + noise[t], which=arm)
        regret[t] = means[t].max() - means[t, arm]
    return regret


def theirs(
    policy: str, X: np.ndarray, means: np.ndarray, noise: np.ndarray, seed: int = 1
) -> np.ndarray:
    """The same with mabwiser."""
    from mabwiser.mab import MAB, LearningPolicy

    rule = {
        "LinUCB": LearningPolicy.LinUCB(alpha=NOISE, l2_lambda=1.0),
        "Thompson": LearningPolicy.LinTS(alpha=NOISE, l2_lambda=1.0),
    }[policy]
    bandit, regret = MAB(list(range(ARMS)), rule, seed=seed), np.empty(len(X))
    first = np.arange(ARMS)
    bandit.fit(first, means[first, first] + noise[first], X[first])
    regret[first] = means[first].max(axis=1) - means[first, first]
    for t in range(ARMS, len(X)):
        arm = bandit.predict(X[t : t + 1])
        bandit.partial_fit([arm], [means[t, arm] + noise[t]], X[t : t + 1])
        regret[t] = means[t].max() - means[t, arm]
    return regret


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, steps=2000, peers=0)
    X, means, noise = readers(options.steps)
    curves = {}
    for policy in ("LinUCB", "Thompson"):
        ours(policy, X[:20], means, noise)  # compiles
        for who, run in (("olsq", ours), ("mabwiser", theirs))[: 1 + options.peers]:
            start = time.perf_counter()
            curves[policy, who] = np.cumsum(run(policy, X, means, noise))
            each = (time.perf_counter() - start) / len(X) * 1e6
            total = curves[policy, who][-1]
            print(f"{policy:>9}, {who:<9} regret {total:7.1f}, {each:6.0f} us a step")
    chance = np.cumsum(means.max(axis=1) - means.mean(axis=1))
    print(f"{'chance':>20} regret {chance[-1]:7.1f}")
    assert curves["LinUCB", "olsq"][-1] < 0.25 * chance[-1]

    def draw(axes):
        for (policy, who), curve in curves.items():
            style = "-" if who == "olsq" else ":"
            color = "C0" if policy == "LinUCB" else "C1"
            axes.plot(curve, style, color=color, label=f"{policy},\n{who}")
        axes.set(xlabel="readers", ylabel="regret so far")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
