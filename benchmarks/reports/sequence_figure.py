"""The figure of docs/chunk-exact.md: causal factor, bounds, and error against corrections."""

from __future__ import annotations

import argparse

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import olsq
from benchmarks.suites.sequence_streams import errors, exact, make
from olsq.plot.labels import label_lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="docs/img/chunk-exact.png")
    out = parser.parse_args().out
    jax.config.update("jax_enable_x64", True)
    figure, grid = plt.subplots(2, 2, figsize=(8.4, 6.4), layout="constrained")
    left, middle, right, spare = grid.ravel()
    spare.remove()

    rng = np.random.default_rng(0)
    d, c = 16, 48
    k = rng.normal(size=(c, d)) / np.sqrt(d)
    inverse = np.linalg.inv(np.eye(d) * 0.25 + 3 * k[:8].T @ k[:8])
    factor = np.linalg.cholesky(np.eye(c) + k @ inverse @ k.T)
    n = np.linalg.solve(factor, k @ inverse)
    scores = np.tril(k @ n.T)
    top = np.abs(scores).max()
    image = left.imshow(np.where(np.tri(c) > 0, scores, np.nan), cmap="RdBu_r", vmin=-top, vmax=top)
    figure.colorbar(image, ax=left, shrink=0.8)
    left.set(title="tril(Q Nᵀ), what token t subtracts", xlabel="token i ≤ t", ylabel="token t")

    steps = np.arange(64)
    for gate in (0.9999, 0.999, 0.99, 0.97):
        middle.semilogy(steps, gate ** (31.5 - steps), label=f"gate {gate}")
    middle.axhline(1, color="0.7", lw=0.8)
    middle.set(
        title="fₜ: spectrum of PM lies between 1 and fₜ", xlabel="token of the chunk", ylabel="fₜ"
    )
    label_lines(middle)

    keys, values, queries = (x.astype(np.float64) for x in make("tokens", 1, 512, 32, 4))
    for i, gate in enumerate((0.9999, 0.999, 0.99, 0.97)):
        want = exact(keys[0], values[0], queries[0], gate, 0.25)
        gates = np.full((1, 512), float(np.float32(gate)))
        found = [
            errors(
                np.asarray(
                    olsq.online_lstsq(
                        keys,
                        values,
                        queries,
                        forget=gates,
                        ridge=0.25,
                        solver=olsq.ChunkExact(corrections=m),
                    ).value[0]
                ),
                want,
            )[1]
            for m in range(7)
        ]
        right.semilogy(range(7), found, "o-", color=f"C{i}", label=f"gate {gate}")
        root = np.sqrt(gate**-31.5)
        rho = (root - 1) / (root + 1)
        right.semilogy(range(7), [2 * rho ** (m + 1) for m in range(7)], ":", color=f"C{i}")
    right.set(
        title="largest error of o (dotted: 2 rho^(m+1))",
        xlabel="corrections m",
        ylabel="relative error",
        ylim=(1e-16, 3),
    )
    label_lines(right)
    figure.savefig(out, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
