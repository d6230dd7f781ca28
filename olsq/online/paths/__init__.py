"""Coefficient paths: the estimate after every row."""
