"""Models of sander_trained.py and their training; gradient descent to compare them with.

    python examples/experiments/sander_models.py --quick  # the short cut for descent, asserted

Sander et al. (2024): every sequence is s[t + 1] = W s[t] with an orthogonal W of its own; the W do
not commute, s[1] is the same for all.  Models map the states, (n, T + 1, d), to predictions of the
third and later ones, (n, T - 1, d); they do not read the last state.
"""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from icl_training import x64

from olsq.icl import descend
from olsq.icl.autoregressive import augmented_tokens, non_augmented
from olsq.tasks import random_orthogonal
from olsq.train import make_scan

DIM, LENGTH = 5, 50
DEPTHS = (1, 2, 3, 4, 5, 6)
STEPS = {"fig5": 2000, "fig7": 2000, "fig8": 2000, "fig9": 2000}
BATCH = {"fig5": 256, "fig7": 32, "fig8": 32, "fig9": 2**10}
RATE = {"fig5": 5e-3, "fig7": 1e-2, "fig8": 1e-2, "fig9": 1e-2}
RULES = ("eta / (t - 1)", "eta")  # of gradient descent
# What L steps of the first rule leave, L = 1 to 6, found once with other sequences.
REFERENCE = (0.0577, 0.0353, 0.0256, 0.0205, 0.0173, 0.0153)


def orthogonal_sequences(n: int, seed: int, *, first: str = "same") -> np.ndarray:
    """States s[1] to s[LENGTH + 1], (n, LENGTH + 1, DIM), of unit norm; s[1] may be "random"."""
    rng = np.random.default_rng(seed)
    w = random_orthogonal(n, DIM, rng)
    states = [np.full((n, DIM), DIM**-0.5)]
    for _ in range(LENGTH):
        states.append(np.einsum("nij,nj->ni", w, states[-1]))
    s = np.stack(states, 1)
    return s if first == "same" else s @ random_orthogonal(n, DIM, rng)


class Descent:
    """Gradient descent from W = 0 on the pairs of a context: errors of its predictions.

    L steps leave the error W (I - eta G)^L s[t] with G the sum of s s^T; W keeps its norm.
    """

    def __init__(self, states: np.ndarray, rule: str) -> None:
        s = states[:, :-1]
        gram = np.cumsum(s[..., :, None] * s[..., None, :], axis=1)[:, :-1]
        if rule == RULES[0]:
            gram = gram / np.arange(1, LENGTH)[:, None, None]
        self.values, vectors = np.linalg.eigh(gram)
        self.shares = np.einsum("ntij,nti->ntj", vectors, s[:, 1:]) ** 2
        self.grid = np.linspace(0.0, 4.0 if rule == RULES[0] else 0.16, 81)[1:]

    def errors(self, eta: float, steps: int) -> np.ndarray:
        """One a sequence and context, (n, LENGTH - 1)."""
        left = np.abs(1.0 - eta * self.values) ** (2 * steps) * self.shares
        return left.sum(-1) / DIM

    def tuned(self, steps: int) -> float:
        """The best eta of the grid, for this many steps."""
        return float(min(self.grid, key=lambda eta: self.errors(eta, steps).mean()))

    def scaled(self, steps: int) -> float:
        """The least mean error of predictions scaled to one norm, as a layer norm may do it."""

        def error(eta: float) -> float:
            grown = 1.0 - (1.0 - eta * self.values) ** steps
            norms = (grown**2 * self.shares).sum(-1) ** 0.5
            return (1.0 - ((grown * self.shares).sum(-1) / norms).mean() ** 2) / DIM

        return float(min(error(eta) for eta in self.grid))


def over_tokens(layer: Any, x: Any) -> Any:
    """A layer for vectors on (n, T, d)."""
    return jax.vmap(jax.vmap(layer))(x)


class Augmented(eqx.Module):
    """Layers of causal linear attention with skip connections on the tokens (0, s[t], s[t - 1])."""

    maps: list[dict[str, eqx.nn.Linear]]
    norms: list[eqx.nn.LayerNorm]
    out: eqx.nn.Linear

    def __init__(self, layers: int, key: Any) -> None:
        keys = jax.random.split(key, (layers, 4))
        self.maps = [
            {
                name: eqx.nn.Linear(3 * DIM, 3 * DIM, key=k)
                for name, k in zip("qkvo", ks, strict=True)
            }
            for ks in keys
        ]
        self.norms = [eqx.nn.LayerNorm(3 * DIM) for _ in range(layers)]
        self.out = eqx.nn.Linear(3 * DIM, DIM, key=jax.random.fold_in(key, 1))

    def __call__(self, states: Any) -> Any:
        x = augmented_tokens(states[:, :-1])
        for maps, norm in zip(self.maps, self.norms, strict=True):
            q, k, v = (over_tokens(maps[name], x) for name in "qkv")
            scores = jnp.tril(jnp.einsum("nti,nui->ntu", q, k)) / (3 * DIM) ** 0.5
            x = x + over_tokens(norm, over_tokens(maps["o"], scores @ v))
        return over_tokens(self.out, x)[:, 1:]


class Bare(eqx.Module):
    """Eq. 6 on tokens (s, ..., s), so many copies, whose query is the last token but one.

    With biases, a layer norm, and a softmax over learned positions as P of every head; the paper's
    text has one P for all heads, its code one a head.
    """

    w: dict[str, Any]  # q, k, v and the positions' pq, pk: (H, width, width + 1), the bias last
    positions: Any  # (LENGTH, width)
    o: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear
    copies: int = eqx.field(static=True)

    def __init__(self, heads: int, copies: int, key: Any, *, spread: float | None = None) -> None:
        """With ``spread``, all heads begin as the same plus so much noise."""
        width, self.copies = DIM * copies, copies
        keys = iter(jax.random.split(key, 13))

        def draw() -> Any:
            shape = (heads if spread is None else 1, width, width + 1)
            w = jax.random.uniform(next(keys), shape, minval=-1.0) / width**0.5
            if spread is None:
                return w
            return w + spread * jax.random.normal(next(keys), (heads, *shape[1:]))

        self.w = {name: draw() for name in ("q", "k", "v", "pq", "pk")}
        self.positions = jax.random.normal(next(keys), (LENGTH, width))
        self.o = eqx.nn.Linear(width, width, key=next(keys))
        self.norm = eqx.nn.LayerNorm(width)
        self.out = eqx.nn.Linear(width, DIM, key=next(keys))

    def values(self) -> Any:
        """The heads' B, (H, width, width)."""
        return np.asarray(self.o.weight @ self.w["v"][..., :-1])

    def __call__(self, states: Any) -> Any:
        e = with_one(jnp.tile(states[:, :-1], self.copies))
        size = self.positions.shape[-1] ** 0.5
        a = jnp.swapaxes(self.w["k"], -1, -2) @ self.w["q"] / size
        places = with_one(self.positions)
        keys, queries = (places @ jnp.swapaxes(self.w[x], -1, -2) for x in ("pk", "pq"))
        scores = queries[:, :-1] @ jnp.swapaxes(keys, -1, -2) / size
        seen = jnp.tri(LENGTH - 1, LENGTH, 1) > 0
        p = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)

        def head(a: Any, b: Any, p: Any) -> Any:
            return non_augmented(e, a[None], b[None], p)

        x = jax.vmap(head)(a, self.w["v"], p).sum(0)
        return over_tokens(self.out, over_tokens(self.norm, over_tokens(self.o, x)))


def with_one(x: Any) -> Any:
    """A coordinate for the biases."""
    return jnp.concatenate([x, jnp.ones_like(x[..., :1])], -1)


class Scalar(eqx.Module):
    """Eq. 6 at d = 1 with one head.

    A softmax may replace the scores by theirs; an MLP adds 32 hidden units on (Re, Im).
    """

    a: Any
    b: Any
    p: Any
    mlp: eqx.nn.MLP | None
    softmax: bool = eqx.field(static=True)

    def __init__(self, length: int, key: Any, *, softmax: bool, mlp: bool) -> None:
        keys = jax.random.split(key, 4)
        self.a, self.b = 0.5 * jax.random.normal(keys[0], (2, 1, 1))
        self.p = 0.5 * jax.random.normal(keys[1], (length - 1, length))
        self.softmax = softmax
        self.mlp = eqx.nn.MLP(2, 2, 32, 1, key=keys[2]) if mlp else None

    def __call__(self, states: Any) -> Any:
        e = states[:, :-1]
        if self.softmax:
            scores = (self.a[0] * e[:, :-1] @ jnp.swapaxes(e.conj(), 1, 2)).real
            seen = jnp.tri(*self.p.shape, 1) > 0
            weights = self.p * jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
            x = self.b[0] * (weights @ e)
        else:
            x = non_augmented(e, self.a, self.b, self.p)
        if self.mlp is None:
            return x
        change = over_tokens(self.mlp, jnp.concatenate([x.real, x.imag], -1))
        return x + change[..., :1] + 1j * change[..., 1:]


def errors(model: Any, states: Any) -> Any:
    """Mean squared error of the predictions of s[3] and later, one a sequence."""
    return (jnp.abs(model(states) - states[:, 2:]) ** 2).mean((1, 2))


def fit(part: str, model: Any, train: Any, test: Any, *, seed: int = 0, **changed: int) -> Any:
    """Adam with a cosine decay: the model, its errors on the test sequences and its record."""
    settings = {"steps": STEPS[part], "batch": BATCH[part], "marks": 25} | changed
    steps, size, marks = settings.values()
    began = time.perf_counter()
    tune = optax.adam(optax.cosine_decay_schedule(RATE[part], steps, 0.01))
    kind = jnp.complex64 if np.iscomplexobj(train) else jnp.float32
    train, test = jnp.asarray(train, kind), jnp.asarray(test, kind)

    def loss(model: Any, states: Any) -> Any:
        return errors(model, states).mean()

    def draw(key: Any) -> Any:
        picked = jax.random.randint(key, (size,), 0, len(train))
        return train if size == len(train) else train[picked]

    between, key = steps // marks, jax.random.key(seed)
    advance = make_scan(loss, tune, draw, steps=between)
    memory, curve = tune.init(eqx.filter(model, eqx.is_inexact_array)), []
    for mark in range(marks):
        model, memory, metrics = advance(model, memory, key, mark * between)
        curve.append(float(metrics.loss.mean()))
    tested = np.asarray(eqx.filter_jit(errors)(model, test), np.float64)
    record = {
        "seed": seed, "steps": steps, "batch": size, "mse": float(tested.mean()),
        "training loss": [float(f"{value:.4g}") for value in curve],
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    return model, tested, record


def orthogonality(model: Bare) -> tuple[np.ndarray, float, float]:
    """Sum over h of B_h^T B_h; its mean magnitude off the diagonal over that on it; also folded.

    The copies of a token cannot be told apart: folded, B_h acts on one, so that it has DIM columns.
    """

    def ratio(x: Any) -> float:
        diagonal = np.abs(np.diag(x)).sum()
        return float((np.abs(x).sum() - diagonal) / (len(x) - 1) / diagonal)

    b = model.values()
    folded = b.reshape(*b.shape[:2], model.copies, DIM).sum(-2)
    whole, folded = (np.einsum("hij,hik->jk", x, x) for x in (b, folded))
    return whole.astype(float).round(3), ratio(whole), ratio(folded)


def descent_table(train: np.ndarray, test: np.ndarray) -> dict[str, list[tuple[float, Any]]]:
    """For both rules and every depth: the eta tuned on one set, the errors on the other."""
    table: dict[str, Any] = {}
    for rule in RULES:
        tuning, testing = Descent(train, rule), Descent(test, rule)
        etas = {depth: tuning.tuned(depth) for depth in DEPTHS}
        table[rule] = [(eta, testing.errors(eta, n).mean(-1)) for n, eta in etas.items()]
    return table


def main(argv: list[str] | None = None) -> None:
    """The short cut of `Descent` is `olsq.icl.descend`, which learns W from the pairs."""
    with x64(True):
        states = jnp.asarray(orthogonal_sequences(4, 0))
        for rule, eta in zip(RULES, (2.0, 0.06), strict=True):
            short = Descent(np.asarray(states), rule).errors(eta, 3)
            for t in (1, 7, LENGTH - 1):
                rates = jnp.full(3, eta if rule == RULES[0] else eta * t)
                x, y, query = states[:, :t], states[:, 1 : t + 1], states[:, t : t + 1]
                off = descend(x, y, query, rates=rates)[-1, :, 0] - states[:, t + 1]
                assert np.allclose((off**2).mean(-1), short[:, t - 1], rtol=1e-9), (rule, t)


if __name__ == "__main__":
    main()
