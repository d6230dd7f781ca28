"""Estimators that are least squares at heart, on the state of the plain one."""
