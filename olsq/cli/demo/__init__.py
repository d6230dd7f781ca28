"""``olsq demo``."""
