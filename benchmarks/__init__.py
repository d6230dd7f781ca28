"""Benchmarks of olsq: asv's suites, reports (the tables and figures of the docs), support."""
