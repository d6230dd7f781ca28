"""The command ``olsq fit``."""
