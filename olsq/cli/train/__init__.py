"""The command ``olsq train``."""
