"""Test a solver of your own with the package's streams, and see it found wanting.

    python examples/gallery/property_test.py [--figure streams.png]

Two versions of a solver that inverts the system: one as it should be, and one with a mistake that a
test on random data does not see (it adds 1e-3 to the ridge "for stability").  The conformance check
passes the first and names what is wrong with the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import figures
import numpy as np

import olsq
from olsq.sequence.numpy.dense import NumpyDense
from olsq.testing import check_solver


# [use]
@dataclass(frozen=True)
class Stabilised(olsq.sequence.Solver):
    """A dense solve of systems with ``more`` added to their ridge."""

    more: float = 0.0
    chunk: int = 64
    truncates = False  # it does not stop before the answer

    def numpy(self):
        return NumpyStabilised(self)


class NumpyStabilised(NumpyDense):
    def prepare(self, chunk):
        return super().prepare(chunk._replace(ridge=chunk.ridge + self.options.more))


def verdict(solver):
    try:
        check_solver(solver, ridge_modes=["fixed"], dtypes=[np.float64])
    except AssertionError as found:
        return str(found).splitlines()[1:]
    return []


# [end]
def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    k, v, q = rng.standard_normal((3, 200, 4))
    truth = olsq.online_lstsq(k, v, q, ridge=1.0).value
    wrong = olsq.online_lstsq(k, v, q, ridge=1.0, solver=Stabilised(1e-3)).value
    error = np.abs(wrong - truth).max(-1)
    print(f"on one random stream the mistake shows by {error[-1]:.0e} at the end: easily missed")
    right, found = verdict(Stabilised()), verdict(Stabilised(1e-3))
    print(f"as it should be: {len(right)} complaints; with the mistake: {len(found)}")
    print(*(line[:100] for line in found[:2]), sep="\n")
    assert not right
    assert found

    def draw(ax):
        ax.semilogy(np.maximum(error, 1e-17), color="#c0362c", label="a random\nstream")
        uneven = k * np.logspace(0, -3, 4)  # keys that hardly ever point in some directions
        exact = olsq.online_lstsq(uneven, v, q, ridge=1e-4).value
        here = olsq.online_lstsq(uneven, v, q, ridge=1e-4, solver=Stabilised(1e-3)).value
        worst = np.abs(here - exact).max(-1)
        ax.semilogy(worst, color="#2166ac", label="uneven keys,\nsmall ridge")
        ax.set_xlabel("token")
        ax.set_title("Error of the solver with the mistake", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
