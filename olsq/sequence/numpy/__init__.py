"""Whole sequences for NumPy arrays, on Numba kernels and BLAS."""
