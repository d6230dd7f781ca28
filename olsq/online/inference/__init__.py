"""Algebra of inference: hypotheses, robust covariances, summaries."""
