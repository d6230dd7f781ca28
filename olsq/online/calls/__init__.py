"""Processing one call of ``fit``, ``partial_fit`` or ``step``: checked rows in, a new state out."""
