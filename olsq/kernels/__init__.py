"""The one Numba decorator of the package, and its cache of compiled code."""
