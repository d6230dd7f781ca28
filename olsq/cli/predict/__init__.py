"""The command ``olsq predict``."""
