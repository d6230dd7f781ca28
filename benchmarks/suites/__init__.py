"""asv's suites: time, memory and error of olsq over the history of its repository.

Nothing else of ``benchmarks/`` is imported from here, for asv imports this folder alone.
"""

import os

# One thread, so that ratios are of work and not of threads; before NumPy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
