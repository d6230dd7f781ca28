"""One call of ``fit``, ``partial_fit`` or ``step``: checked rows in, an updated state out."""
