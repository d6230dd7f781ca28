"""``olsq fit``."""
