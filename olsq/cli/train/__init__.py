"""``olsq train``."""
