"""The command ``olsq demo``."""
