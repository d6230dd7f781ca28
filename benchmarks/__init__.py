"""Benchmarks of olsq: stability (``benchmarks.stability``) and speed (asv, ``online_table``)."""
