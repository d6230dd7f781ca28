"""Checks and conversions of array arguments, shared by NumPy and JAX."""
