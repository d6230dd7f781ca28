"""Float32 streams with a dependent column, in mixed units, that forget: nothing may run away.

    python -m benchmarks.reports.collinear_float32 [first] [last]     # 0 to 1000: some minutes

Prints every seed with a complaint (``collinear_cases.py`` makes and judges the cases) and at
the end how many there were.
"""

from __future__ import annotations

import sys

from benchmarks.support.collinear_cases import complaints, draw


def main() -> None:
    """Command line."""
    first, last = (*map(int, sys.argv[1:]), *(0, 1000)[len(sys.argv) - 1 :])
    found = 0
    for seed in range(first, last):
        wrong = complaints(draw(seed))
        found += bool(wrong)
        if wrong:
            print(seed, draw(seed).parameters, wrong, flush=True)
    print(f"{found} of seeds {first} to {last} with a complaint")


if __name__ == "__main__":
    main()
