"""Swap the solver at test time: accuracy against steps, for the same weights and gates.

    python examples/gallery/swap_solvers.py [--figure solvers.png]

The solver of a Mesa layer is an option of the call, not a weight.  How many steps of conjugate
gradient are enough depends on how long the memory is: short memories need few, long ones need many
or the exact solver, whose error is that of rounding at any gate.
"""

from __future__ import annotations

import figures
import jax
import jax.numpy as jnp
import numpy as np

import olsq

STEPS = (1, 2, 4, 8, 16, 32)
GATES = (0.5, 0.9, 0.99, 0.999)  # one sequence for each
COLOURS = ("#9aa5b1", "#7fb3d5", "#2166ac", "#1f2933")


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 512, 2, 32)).repeat(4, axis=1) / 32**0.5
    forget = jnp.broadcast_to(jnp.array(GATES)[:, None, None], (4, 512, 2))

    # [use]
    def read(solver):
        return olsq.attention.mesa(q, k, v, forget=forget, ridge=0.1, solver=solver)[0]

    exact = read(None)  # the default
    few = {steps: read(olsq.ConjugateGradient(max_steps=steps, tol=0.0)) for steps in STEPS}
    # [end]
    truth = read(olsq.Dense())

    def error(o):
        """By sequence, so by gate."""
        return np.asarray(abs(o - truth).max((1, 2, 3)) / abs(truth).max((1, 2, 3)))

    steps = np.array([error(o) for o in few.values()])
    for i, gate in enumerate(GATES):
        row = " ".join(f"{e:8.0e}" for e in steps[:, i])
        print(f"gates {gate:<6} after {STEPS} steps: {row}   exact solver: {error(exact)[i]:.0e}")
    assert error(exact).max() < 1e-4
    assert steps[3, 0] < 1e-3 < steps[3, -1]  # eight steps: enough for a short memory only

    def draw(ax):
        for i, gate in enumerate(GATES):
            ax.loglog(STEPS, steps[:, i], "o-", ms=3, color=COLOURS[i], label=f"gates {gate}")
        ax.set_xlabel("steps of conjugate gradient")
        ax.set_ylim(1e-7, 2)
        ax.set_xticks(STEPS, [str(n) for n in STEPS])
        ax.set_title("Largest error of an output, relative", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
