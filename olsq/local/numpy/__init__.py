"""Local least squares for NumPy arrays, on BLAS."""
