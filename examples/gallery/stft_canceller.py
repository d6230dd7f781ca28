"""Cancel an echo in the frequency domain: one complex filter for each bin of an STFT.

    python examples/gallery/stft_canceller.py [--figure stft.png]

An echo path of 100 ms would be 800 taps in time.  In the frames of a short-time Fourier transform
(frames of 256 samples, 64 apart) it is a few complex taps over past frames in each of 129 bins: a
bank of small filters, each of which learns one row per frame.  The measure is how far the echo is
below what it was.
"""

from __future__ import annotations

import figures
import numpy as np
from scipy.signal import ShortTimeFFT, lfilter

import olsq

RATE, SECONDS, FRAME, HOP, TAPS = 8000, 8, 256, 64, 16


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    n, length = RATE * SECONDS, RATE // 10
    far = lfilter([1.0], [1.0, -0.9], rng.standard_normal(n))
    room = rng.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
    echo = lfilter(room / np.linalg.norm(room), 1, far)
    near = 0.01 * echo.std() * rng.standard_normal(n)
    transform = ShortTimeFFT(np.hanning(FRAME), HOP, RATE)
    F, M = (transform.stft(signal).T for signal in (far, echo + near))  # (frames, bins)
    # [use]
    frames, bins = F.shape
    bank = olsq.FilterBank(bins, forget=0.998, ridge=1e-3, fit_intercept=False)
    padded = np.concatenate([np.zeros((TAPS - 1, bins)), F])
    past = np.lib.stride_tricks.sliding_window_view(padded, TAPS, axis=0).transpose(1, 0, 2)
    left = np.empty_like(M)
    for start in range(0, frames, 16):  # 128 ms, as they come in
        block = slice(start, start + 16)
        left[block] = bank.partial_fit(past[:, block], M[block].T).residual_.T
    sent = transform.istft(left.T, k1=n)
    # [end]
    parts = [np.add.reduceat(a**2, np.arange(0, n, RATE // 2)) for a in (echo, sent - near)]
    below = 10 * np.log10(parts[0] / parts[1])
    print(f"{bins} bins of {TAPS} complex taps, {frames} frames")
    print(f"echo reduced by {below[1]:.1f} dB after one second, {below[-2]:.1f} dB at the end")
    assert below[-2] > 20

    def draw(axes):
        axes.plot((np.arange(len(below)) + 0.5) / 2, below)
        axes.set(xlabel="seconds", ylabel="echo below what it was, dB", ylim=(0, None))

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
