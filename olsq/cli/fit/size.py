"""Check, before the first row, that a regression with this many coefficients fits into memory."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from olsq.cli.errors import InputError, say

# Matrices of k x k float64 numbers at the peak of a fit, k the number of coefficients.  Measured
# with k of 1,000 and 2,000: 5.5 to 11.5 (windows the least, forgetting the most); 3.6 for each
# group of --by.
MATRICES, MATRICES_PER_GROUP = 10, 4
# Seconds per k^3 of the first chunk on one core (measured: 7 s at k = 2,000).
SECONDS = 1e-9
WORTH_A_WORD = 1 << 30  # bytes above which the user is told
MEMORY_INFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Return the bytes of memory that this process may still take; None if the system does not
    tell.
    """
    limits = []
    try:
        for line in MEMORY_INFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(1024 * int(line.split()[1]))
        # A container is killed at its own limit, which may be far below the machine's.
        limit = (CGROUP / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            used = (CGROUP / "memory.current").read_text(encoding="ascii")
            limits.append(max(int(limit) - int(used), 0))
    except (OSError, ValueError):
        pass
    if not limits and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def check_size(where: str, coefficients: int, *, grouped: bool, console: Console) -> None:
    """Tell the user how much memory many coefficients take.

    Raises
    ------
    InputError
        If that is more than there is.
    """
    needed = 8 * coefficients**2 * (MATRICES_PER_GROUP if grouped else MATRICES)
    if needed < WORTH_A_WORD:
        return
    each = " for each group" if grouped else ""
    word = f"{coefficients:,} coefficients take about {_format_gigabytes(needed)} of memory{each}"
    free = free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"{where}: {word}, and {_format_gigabytes(free)} are free: choose fewer columns with "
            "--features or --exclude"
        )
    minutes = SECONDS * coefficients**3 / 60
    time = f" and minutes of work (about {minutes:,.0f} for the first rows)" * (minutes >= 1)
    say(console, f"olsq: {word}{time}; --features and --exclude choose fewer columns")


def _format_gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size < 1e10 else f"{size / 1e9:,.0f} GB"
