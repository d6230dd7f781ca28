"""Dense float64 oracles: slow, obvious, and sharing no code with what they check.

Only tests import this package.
"""
