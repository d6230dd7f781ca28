"""The command ``olsq sample``."""
