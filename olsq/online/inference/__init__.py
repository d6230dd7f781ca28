"""Inference with a fitted estimator: predictions, standard errors, tests, summaries, draws."""
