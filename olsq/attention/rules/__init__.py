"""Attention rules, each on whole sequences and one token at a time.

Rules of one kind repeat one another's signature, and the text of shared arguments word for word, so
that each is read, completed and type-checked by itself; a test holds the texts equal.  What their
bodies share is written once, in ``attention.arguments``, ``states``, ``lost`` and ``steps``.
"""
