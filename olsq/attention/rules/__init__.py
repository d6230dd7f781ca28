"""Attention rules, each on whole sequences and one token at a time."""
