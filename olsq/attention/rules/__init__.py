"""The rules: every one on whole sequences and one token at a time."""
