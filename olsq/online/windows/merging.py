"""Merging rolling windows: the rows of both, of which the window keeps the last."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.counting import FAINTEST
from olsq.online.forms.form_switch import span_of_both
from olsq.online.windows.ring_kernels import DECAY, FILLED
from olsq.online.windows.window import SMALLEST_RING, RollingWindow


def merge(
    first: RollingWindow, second: RollingWindow, now: int | float | None, gate: float = 1.0
) -> RollingWindow:
    """Merge windows over first's rows and then second's.

    ``now`` is the time of the last row, ``gate`` what rows fade between first's last row and
    second's first.
    """
    window, duration, times = first.most_rows, first.duration, None
    between = gate * second.decay  # by which the first rows have faded
    held, faded = first.weights, between * first.fades
    held = np.where(held > 0, np.maximum(between * held, FAINTEST), 0.0)
    both = [np.concatenate(pair) for pair in zip(first.rows(), second.rows(), strict=True)]
    fades = first.ring_fade is not None or second.ring_fade is not None or gate != 1
    both[3] = np.append(held, second.weights) if fades else both[3]
    both.append(np.append(faded, second.fades))
    dropped = 0 if between > 0 else int(first.place[FILLED])
    both = [part[dropped:] for part in both]
    if duration is not None and now is not None:
        times = np.concatenate([first.times, second.times])[dropped:]
        stays = times > duration.expired(np.array(now))
        both, times = [part[stays] for part in both], times[stays]
    else:
        both = [part[-window:] for part in both]
    count = both[0].shape[0]
    merged = RollingWindow.start(
        (window // 2 if first.paired else window) if duration is None else duration,
        first.ridge,
        first.ring_Y.shape[1],
        first.form.intercept,
        first.form.precision,
        bool(first.place[2]),
        first.paired,
    )
    if times is not None:
        merged._grow(max(SMALLEST_RING, 2 ** (count - 1).bit_length()))
        assert merged.ring_t is not None
        merged.ring_t[:count] = times
    window = merged.ring_w.size
    merged.ring_X[:count], merged.ring_Y[:count] = both[0], both[1]
    merged.ring_w[:count] = both[3]
    merged.place[:2] = count, count % window
    if fades:
        merged.ring_fade = np.append(both[4], np.zeros(window - count))
        decay = first.decay * between
        merged.fading[DECAY] = max(decay, FAINTEST) if min(first.decay, between) > 0 else 0.0
    merged.span = span_of_both(first, second)
    merged._make_anew()
    return merged
