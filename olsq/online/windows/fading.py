"""Rolling windows whose rows fade: forgetting factors inside the window.

Row i weighs its weight w_i times the product of the gates after i, as long as it is inside.  The
kernels of windows know no gates.  They learn the rows of a call in pieces, with weights that grow
instead of ones that shrink: with ``G_t`` the product of the gates after the first row of a piece,

    row t enters with weight w_t / G_t,  and the form's information is the true one over G_t,

so that coefficients and residuals are those of the faded window, and a row that leaves takes out
what is left of it.  Before and after a piece the whole window is multiplied by what it has faded
(:func:`fade`), rows of the ring included.  A gate of 0 empties the window.

A ridge does not fade.  With one, every row with a gate below 1 is a piece of its own, and what the
ridge has lost is put back as rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.rows import Rows, Trace, read_only
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, FAINTEST, WEIGHT
from olsq.online.windows.accuracy import EPS
from olsq.online.windows.row_kernels import FILLED, POSITIONS

if TYPE_CHECKING:
    from olsq.online.windows.window import RollingWindow

# Binary digits by which rows may fade within a piece: squares that fit stay far from overflow.
MOST_DIGITS = 20
# Information below which a form may end in denormal numbers: it is made anew from the ring, whose
# weights never fall below FAINTEST.
FAINTEST_COLUMN = 2.0**-960


def update(
    window: RollingWindow, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None
) -> NDArray[np.int64]:
    """Take rows with their gates into the window; return the samples in it after each row (n,)."""
    if window.ring_fade is None:
        window.ring_fade = (window.ring_w > 0).astype(np.float64)
    samples = np.empty(len(rows.gates), np.int64)
    has_ridge = bool(window.ridge.any())
    for start, stop in pieces(rows.gates, has_ridge):
        piece, gate = slice(start, stop), float(rows.gates[start])
        # A row's residual is that of the coefficients before the gate, which these gates change.
        before = window.form if gate == 0 or (has_ridge and gate < 1) else None
        theta = None if before is None else before.coefficients()
        head = slice(start, start + (2 if window.paired else 1))
        scale = 0.0
        if before is not None and trace.wanted and gate > 0:
            W, determined = before.whitened(rows.X[start : start + 1])
            weight = rows.weights[start]
            scale = np.sqrt(weight * gate / (gate + weight * (W**2).sum())) * determined[0]
        fade(window, gate)
        samples[piece] = _learn_piece(
            window,
            type(rows)(*(a[piece] for a in rows)),
            residual[piece],
            Trace(*(a[piece] if len(a) else a for a in trace)),
            None if times is None else times[piece],
        )
        if theta is not None:
            residual[head] = rows.Y[head] - rows.X[head] @ theta.T
            if trace.wanted:
                trace.recursive[head] = residual[head] * scale
    count_faded(window)
    return samples


def pieces(gates: NDArray[np.float64], has_ridge: bool) -> Iterator[tuple[int, int]]:
    """Split rows where what is before them has faded by more than ``MOST_DIGITS``, or at all."""
    with np.errstate(divide="ignore"):
        # A reset counts as many digits, so that it begins a piece.
        faded = np.cumsum(np.minimum(-np.log2(gates), 2 * MOST_DIGITS))
    start = 0
    while start < gates.size:
        most = faded[start] + (0 if has_ridge else MOST_DIGITS)
        stop = int(np.searchsorted(faded, most, side="right"))
        yield start, stop
        start = stop


def fade(window: RollingWindow, gate: float) -> None:
    """Multiply all that rows have left in the window by a gate, the ridge aside."""
    if gate == 1:
        return
    fades: NDArray = window.ring_fade  # type: ignore[assignment]
    window.decay = lowered(window.decay, gate)
    if gate == 0:
        _empty(window)
        return
    fades *= gate
    window.ring_w = faded(window.ring_w, gate)
    if window.is_outdated:  # factors of few rows have no weights
        return
    form = window.latest_form
    now = form.columns[0]
    if (now[now > 0] * gate < FAINTEST_COLUMN).any():
        window.rebuild()
        return
    inflation = 1.0
    if isinstance(form, CovarianceForm):
        form.P /= gate
        inflation = float((np.diagonal(form.P) * now * gate).max())
    else:
        form.R *= np.sqrt(gate)
        form.z *= np.sqrt(gate)
    for array in (form.columns, form.loss, window.sizes):
        array *= gate
    form.tally[WEIGHT] *= gate
    chosen = np.flatnonzero(window.ridge)
    window.monitor += (2 + chosen.size) * EPS * inflation  # ring and form are rounded apart
    if chosen.size:
        _restore_ridge(window, chosen, 1.0 - gate)


def lowered(decay: float, gate: float) -> float:
    """Multiply two products of gates; only a gate of 0 makes 0."""
    return max(decay * gate, FAINTEST) if decay > 0 and gate > 0 else 0.0


def faded(weights: NDArray, gate: float) -> NDArray:
    """Multiply weights by a gate above 0; what had a weight keeps one."""
    return np.where(weights > 0, np.maximum(weights * gate, FAINTEST), 0.0)


def _empty(window: RollingWindow) -> None:
    form = window.latest_form
    window.latest_form = SquareRootForm.start(
        window.ridge, form.loss.size, form.intercept, form.precision
    )
    window.factors, window.is_outdated = None, False
    window.place[FILLED] = 0
    window.sizes[:] = window.monitor[:] = 0.0


def _restore_ridge(window: RollingWindow, chosen: NDArray[np.int64], lost: float) -> None:
    """Put back the share that the ridge has lost, as rows of one regressor and of target 0."""
    form, n = window.latest_form, chosen.size
    d, m = window.ridge.size, form.loss.size
    X, ones = np.zeros((n, d)), np.ones(n)
    X[np.arange(n), chosen] = np.sqrt(lost * window.ridge[chosen])
    tally, largest = form.tally.copy(), form.columns[1].copy()
    rows = Rows.of(X, np.zeros((n, m)), ones, ones)
    done = form.update(rows, 0, n, np.empty((n, m)), Trace.none(m, d))
    form.tally[:] = tally
    np.maximum(form.columns[1], largest, out=form.columns[1])
    if done < n:  # beyond the bounds of the covariance form
        window.rebuild()


def _learn_piece(
    window: RollingWindow, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None
) -> NDArray[np.int64]:
    """Learn rows of which the first one's gate has been applied; return the samples after each."""
    relative = np.cumprod(np.append(1.0, rows.gates[1:]))
    weights = rows.weights / relative
    is_sample = weights > 0
    order = window._order
    held_samples = window.ring_w[order] > 0
    fades: NDArray = window.ring_fade[order] * held_samples  # type: ignore[index]
    window.ring_fade = None  # kernels and rebuilds count samples
    tally = window.latest_form.tally
    tally[COUNT] = tally[COUNT_SQUARED] = np.count_nonzero(held_samples)
    enters = np.ones(len(weights), np.bool_) if window.place[POSITIONS] else is_sample
    leaving = window._count_leaving(weights, times)
    plain = rows._replace(gates=read_only(np.ones(len(weights))), weights=read_only(weights))
    window._take(plain, leaving, residual, trace)
    # All rows that have been in the window, oldest first; those inside after row t are
    # first[t]..last[t].  What leaves weighs less than what stays, so that sums may be subtracted.
    line = np.concatenate([fades, (is_sample / relative)[enters]])
    last = held_samples.size + np.cumsum(enters)
    first = np.cumsum(leaving) if leaving.size else np.maximum(last - window.ring_w.size, 0)

    def inside(values: NDArray) -> NDArray:
        sums = np.append(0, np.cumsum(values))
        return sums[last] - sums[first]

    samples = inside(np.concatenate([held_samples, is_sample[enters]]))
    if trace.wanted:
        if len(trace.variance):
            trace.variance[:] /= relative[:, None]
        trace.loss[:] *= relative[:, None]
        trace.recursive[:] *= np.sqrt(relative)[:, None]
        trace.counts[:, WEIGHT] *= relative
        trace.counts[:, COUNT] = relative * inside(line)
        trace.counts[:, COUNT_SQUARED] = relative**2 * inside(line**2)
    window.ring_fade = np.zeros(window.ring_w.size)
    window.ring_fade[window._order] = line[first[-1] : last[-1]]
    fade(window, float(relative[-1]))
    return samples


def weights_of_both(
    first: RollingWindow, second: RollingWindow, gate: float
) -> tuple[NDArray, NDArray]:
    """Return weights and products of factors of first's rows, faded by a gate, then second's."""
    weights = [window.ring_w[window._order] for window in (first, second)]
    fades = [
        own > 0 if window.ring_fade is None else window.ring_fade[window._order]
        for window, own in zip((first, second), weights, strict=True)
    ]
    weights[0] = faded(weights[0], gate)
    return np.concatenate(weights), np.concatenate([gate * fades[0], fades[1]])


def log_weight_sum(window: RollingWindow) -> float:
    """Return the sum of the logarithms of the sample weights, each times its row's factors."""
    weights = window.ring_w[window._order]
    if window.ring_fade is None:
        return float(np.log(weights[weights > 0]).sum())
    fades = window.ring_fade[window._order]
    seen = (fades > 0) & (weights > 0)
    fades = fades[seen]
    return float(fades @ (np.log(weights[seen]) - np.log(fades)))


def count_faded(window: RollingWindow) -> None:
    """Set the form's numbers of rows to the sums of their fading factors, as forgetting does."""
    fades: NDArray = window.ring_fade[window._order]  # type: ignore[index]
    tally = window.latest_form.tally
    tally[COUNT], tally[COUNT_SQUARED] = fades.sum(), (fades**2).sum()
