"""What a measurement was taken on: processor, cores, versions, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

PACKAGES = (
    "olsq",
    "numpy",
    "scipy",
    "numba",
    "padasip",
    "river",
    "filterpy",
    "statsmodels",
    "scikit-learn",
    "polars",
    "polars-ols",
    "linearmodels",
    "pyfixest",
)


def cpu_model() -> str:
    """Name of the processor as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, object]:
    """Processor, core count, Python and package versions, and today's date."""
    versions = {}
    for package in PACKAGES:
        try:
            name = "online-least-squares" if package == "olsq" else package
            versions[package] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "from the checkout" if package == "olsq" else "not installed"
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
    }


def sentence(facts: dict, *packages: str) -> str:
    """Write one line of prose out of :func:`describe`, with the versions of these packages."""
    versions = facts["versions"]
    shown = ", ".join(f"{name} {versions[name]}" for name in ("olsq", *packages))
    threads = f"{facts['threads']} BLAS thread" + "s" * (facts["threads"] > 1)
    return (
        f"Measured {facts['date']} on {facts['cpu']} ({facts['cores']} cores, {threads}), {shown}."
    )
