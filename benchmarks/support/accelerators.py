"""Predicted times of counted programs on accelerators, from published peaks: no measurement.

A program takes ``max(flops / peak, bytes / bandwidth) + LAUNCH kernels`` seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LAUNCH = 3e-6  # seconds between the starts of two dependent kernels


class Device(NamedTuple):
    """Published peaks: flops and bytes a second."""

    exact: float  # float32 products in full precision
    quick: float  # float32 products as the device multiplies them by default
    half: float  # bfloat16 products
    bandwidth: float


# NVIDIA's data sheets (SXM, dense): float32 outside of tensor cores, TF32, bfloat16.  Google's page
# of the TPU v5e: bfloat16; float32 in full takes six passes of it, by default one.
DEVICES = {
    "H100": Device(67e12, 495e12, 989e12, 3.35e12),
    "H200": Device(67e12, 495e12, 989e12, 4.8e12),
    "TPU v5e": Device(197e12 / 6, 197e12, 197e12, 0.819e12),
}
SOLVES = ("mesa", "mesa cg")  # of the rules whose times are predicted
TERMS = ("arithmetic", "memory", "launches")


def terms(counts: dict[str, Any], device: str, exact: bool) -> dict[str, float]:
    """Return the seconds of arithmetic, memory and launches."""
    peak = DEVICES[device]
    return {
        "arithmetic": counts["flops"] / (peak.exact if exact else peak.quick),
        "memory": counts["bytes"] / peak.bandwidth,
        "launches": counts["kernels"] * LAUNCH,
    }


def predict(counts: dict[str, Any], device: str, exact: bool) -> tuple[float, str]:
    """Return the predicted seconds, and the term that is largest."""
    parts = terms(counts, device, exact)
    total = max(parts["arithmetic"], parts["memory"]) + parts["launches"]
    return total, max(parts, key=lambda name: parts[name])


def fused(rule: str, tokens: int, streams: int, d: int, steps: int = 30, c: int = 64) -> Any:
    """Count hand-written kernels, forward and with the gradient, by the operations of their papers.

    flash-linear-attention's gla and mesa, float32 streams: a chunk's moments are written and read
    once, everything within a chunk stays on the chip.  A product with the moments of every token
    takes 2 (2 C d + d^2) flops; mesa takes one a step, and solves once more for the gradient.
    """
    n, size = tokens * streams, 4
    product = 2 * (2 * c * d + d * d) * n
    update = 2 * d * d * n
    arrays, moments = n * d * size, n // c * d * d * size
    if rule == "gla":
        forward = {"flops": product + update, "bytes": 4 * arrays + 2 * moments, "kernels": 4}
        more = {"flops": 2.5 * (product + update), "bytes": 8 * arrays + 4 * moments, "kernels": 6}
    else:
        flops = (steps + 1) * product + 2 * update
        forward = {"flops": flops, "bytes": 5 * arrays + 4 * moments, "kernels": 8}
        flops = (steps + 5) * product + 4 * update
        more = {"flops": flops, "bytes": 12 * arrays + 8 * moments, "kernels": 16}
    return {"forward": forward, "both": {k: forward[k] + more[k] for k in forward}}


def factor_kernel(counts: dict[str, Any]) -> dict[str, Any]:
    """Count mesa with each inverse Cholesky factor in one kernel: 24 leaves of 8 unrolled rows.

    Counted by name in the program of T 8,192: its kernels are all but some 250 of the forward
    pass's, and move 5.5 GB of its 29 GB, of which 1 GB stay.
    """
    return counts | {"kernels": counts["kernels"] - 1130, "bytes": counts["bytes"] - 4.5e9}


def chunk_kernel(counts: dict[str, Any], rule_bytes: float, kernels: int = 8) -> dict[str, Any]:
    """Count the same arithmetic in kernels that keep a chunk on the chip: the most to gain."""
    return {"flops": counts["flops"], "bytes": rule_bytes, "kernels": kernels}
