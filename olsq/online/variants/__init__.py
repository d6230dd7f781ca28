"""Estimators that are least squares at heart, on the square-root state of the plain one."""
